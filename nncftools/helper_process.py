"""Entry point of the processes that run beside the command: ``python -I -S …/helper_process.py KIND …``.

- ``sampler JOURNAL IN OUT [LABEL]`` records the command. The first three arguments are numbers of file descriptors.
- ``devices SAMPLER PID CHILDREN [LABEL]`` reads GPUs and NPUs.
- ``stacks LOG [LABEL]`` reads stacks and mappings. ``LOG`` is the number of a file descriptor. The first line on
  standard input is the request in JSON (``snapshots.helper.Order``).

With ``-I -S``, the interpreter starts in half the time, takes 1 MiB less, and ignores the environment. The environment
belongs to the measured command, and is passed on unchanged.
"""

import gc
import os
import sys

if __name__ == "__main__":
    folder = os.path.abspath(__file__)  # pathlib would cost 16 ms of start and 1.5 MiB
    for _ in range(2):
        folder = os.path.dirname(folder)
    sys.path.append(folder)
    kind = sys.argv[1]
    arguments = sys.argv[2:]
    gc.disable()
    status = 0
    if kind == "devices":
        from nncftools.sampler import devices

        numbers = map(int, arguments[:3])
        devices.main(*numbers, is_detached=bool(arguments[3:]))
    elif kind == "stacks":
        from nncftools.sampler.tree import DETACHED_ARGUMENT, detach
        from nncftools.snapshots import helper

        if arguments[-1] == DETACHED_ARGUMENT:
            detach()
        status = helper.main(int(arguments[0]))
    else:
        from nncftools.sampler import service

        gc.enable()
        status = service.main(*map(int, arguments[:3]))
    gc.freeze()  # otherwise, Python would search all modules for reference cycles at exit
    sys.exit(status)
