"""Hold MIB mebibytes for 40 ms, AT seconds after the start, and live SECONDS; write the high-water mark to FILE.

spike.py FILE MIB AT SECONDS
"""

import sys
import time

SPIKE_S = 0.04

begin = time.monotonic()
size, at, seconds = int(sys.argv[2]) * 2**20, float(sys.argv[3]), float(sys.argv[4])
time.sleep(max(0.0, begin + at - time.monotonic()))
held = bytearray(size)
held[::4096] = b"x" * len(held[::4096])
time.sleep(max(0.0, begin + at + SPIKE_S - time.monotonic()))
del held
time.sleep(max(0.0, begin + seconds - time.monotonic()))
with open("/proc/self/status", "rb") as status:  # noqa: PTH123 — as small as possible
    mark = next(line for line in status if line.startswith(b"VmHWM:"))
with open(sys.argv[1], "w") as file:  # noqa: PTH123 — the same
    file.write(str(int(mark.split()[1]) * 1024))
