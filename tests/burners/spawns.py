"""Hold 100 MiB, and keep a child from exec for a second: it shares the memory as one of vfork(2) does."""

import os
import pathlib
import sys
import time

pipe = pathlib.Path(sys.argv[1])
os.mkfifo(pipe)
opener = os.fork()
if opener == 0:
    time.sleep(1)
    os.close(os.open(pipe, os.O_WRONLY))
    os._exit(0)
held = bytearray(100 << 20)
for place in range(0, len(held), 4096):
    held[place] = 1
child = os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, str(pipe), os.O_RDONLY, 0)])
os.waitpid(child, 0)
os.waitpid(opener, 0)
