"""Entry of the sampler process: ``python -I -S …/sampler/__main__.py JOURNAL IN OUT [LABEL]``, three descriptors.

``… devices SAMPLER PID CHILDREN [LABEL]`` starts the helper that reads GPUs and NPUs instead.

The isolated interpreter (``-I -S``) starts in half the time and takes 1 MiB less. The environment belongs to the
measured command and is passed on unchanged; the interpreter ignores it.
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
    gc.freeze()  # at exit, Python would look for cycles in all modules
    sys.exit(status)
