"""Start a daemon (double fork, setsid) that touches MIB mebibytes for SECONDS, and outlive it: daemon.py MIB SECONDS"""

import os
import sys
import time

size, seconds = int(float(sys.argv[1]) * 2**20), float(sys.argv[2])
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        held = bytearray(size)
        held[::4096] = b"x" * len(held[::4096])
        time.sleep(seconds)
    os._exit(0)
os.wait()
time.sleep(seconds * 1.5)
