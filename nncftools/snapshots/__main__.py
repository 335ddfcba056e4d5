"""Entry point of the helper process: ``python -I -S …/snapshots/__main__.py LOG``.

``LOG`` is the number of a file descriptor. The first line on standard input is the request in JSON (``helper.Order``):
the processes to watch, and the budget of CPU time.
"""

import os
import sys

if __name__ == "__main__":
    path = os.path.abspath(__file__)  # pathlib would cost 16 ms of start
    for _ in range(3):
        path = os.path.dirname(path)
    sys.path.append(path)
    from nncftools.sampler.tree import DETACHED_ARGUMENT, detach
    from nncftools.snapshots.helper import main

    if sys.argv[-1] == DETACHED_ARGUMENT:
        detach()
    sys.exit(main(int(sys.argv[1])))
