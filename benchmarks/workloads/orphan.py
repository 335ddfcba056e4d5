"""Start a daemon (double fork, setsid) that holds MIB mebibytes for HOLD seconds, and live SECONDS.

orphan.py MIB HOLD SECONDS
"""

import os
import sys
import time

size, hold, seconds = int(sys.argv[1]) * 2**20, float(sys.argv[2]), float(sys.argv[3])
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        held = bytearray(size)
        held[::4096] = b"x" * len(held[::4096])
        time.sleep(hold)
    os._exit(0)
os.wait()
time.sleep(seconds)
