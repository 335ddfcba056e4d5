"""Hold 100 MiB, and keep a child from exec for 20 samples: it shares the memory as one of vfork(2) does.

spawns.py FILE PIPE: writes the own RSS to FILE.
"""

import os
import sys

from sampling import fills, own, touched, until_sampled, write

file, pipe = sys.argv[1:]
os.mkfifo(pipe)
parent = os.getpid()
opener = os.fork()
if opener == 0:
    for _ in fills():
        with open(f"/proc/{parent}/task/{parent}/children") as children:  # noqa: PTH123 — as small as possible
            if len(children.read().split()) > 1:
                break
    until_sampled(20)
    os.close(os.open(pipe, os.O_WRONLY))
    os._exit(0)
held = touched(100)
write(file, own("VmRSS"))
child = os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, pipe, os.O_RDONLY, 0)])
os.waitpid(child, 0)
os.waitpid(opener, 0)
