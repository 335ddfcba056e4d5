"""Entry point of the sampler process: ``python -I -S …/sampler/__main__.py JOURNAL IN OUT [LABEL]``.

``JOURNAL``, ``IN`` and ``OUT`` are numbers of file descriptors. With ``devices SAMPLER PID CHILDREN [LABEL]`` in place
of these arguments, the process is the helper that reads GPUs and NPUs.

With ``-I -S``, the interpreter starts in half the time, takes 1 MiB less, and ignores the environment. The environment
belongs to the measured command, and is passed on unchanged.
"""

import gc
import os
import sys

if __name__ == "__main__":
    folder = os.path.abspath(__file__)  # pathlib would cost 16 ms of start and 1.5 MiB
    for _ in range(3):
        folder = os.path.dirname(folder)
    sys.path.append(folder)
    gc.disable()
    if sys.argv[1] == "devices":
        from nncftools.sampler import devices

        numbers = map(int, sys.argv[2:5])
        devices.main(*numbers, is_detached=bool(sys.argv[5:]))
    from nncftools.sampler.service import main

    gc.enable()
    status = main(*map(int, sys.argv[1:4]))
    gc.freeze()  # otherwise, Python would search all modules for reference cycles at exit
    sys.exit(status)
