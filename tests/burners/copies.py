"""Touch MIB mebibytes and fork COPIES that do nothing for SECONDS: copies.py MIB COPIES SECONDS"""

import os
import sys
import time

held = bytearray(int(float(sys.argv[1]) * 2**20))
held[::4096] = b"x" * len(held[::4096])
for _ in range(int(sys.argv[2])):
    if os.fork() == 0:
        time.sleep(float(sys.argv[3]))
        os._exit(0)
for _ in range(int(sys.argv[2])):
    os.wait()
