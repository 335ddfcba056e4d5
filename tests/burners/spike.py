"""Touch MIB mebibytes for SECONDS amid a life of 1.5 s and write the own high-water mark: spike.py FILE MIB SECONDS"""

import sys
import time

time.sleep(0.7)
held = bytearray(int(float(sys.argv[2]) * 2**20))
held[::4096] = b"x" * len(held[::4096])
time.sleep(float(sys.argv[3]))
del held
time.sleep(0.7)
with open("/proc/self/status") as status, open(sys.argv[1], "w") as file:  # noqa: PTH123 — as small as possible
    mark = next(line for line in status if line.startswith("VmHWM:"))
    file.write(str(int(mark.split()[1]) * 1024))
