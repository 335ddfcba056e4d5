"""Touch MIB mebibytes, fork COPIES that share them, and end after SECONDS: shared.py MIB COPIES SECONDS"""  # noqa: D400 — a usage line

import os
import sys
import time

size, copies, seconds = int(sys.argv[1]) * 2**20, int(sys.argv[2]), float(sys.argv[3])
held = bytearray(size)
held[::4096] = b"x" * len(held[::4096])
for _ in range(copies):
    if os.fork() == 0:
        time.sleep(seconds)
        os._exit(0)
for _ in range(copies):
    os.wait()
