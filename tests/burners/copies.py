"""Touch MIB mebibytes and fork COPIES; write RSS and PSS of all together to FILE: copies.py FILE MIB COPIES METRIC

Ends when METRIC was sampled with all of them there.
"""

import os
import sys

from sampling import touched, until_sampled, write

held = touched(sys.argv[2])
(wait, end), (ready, tell) = os.pipe(), os.pipe()
copies = []
for _ in range(int(sys.argv[3])):
    copies.append(os.fork())
    if copies[-1] == 0:
        os.close(end)
        os.write(tell, b"x")
        os.read(wait, 1)
        os._exit(0)
for _ in copies:
    os.read(ready, 1)
sums = dict.fromkeys(("Rss:", "Pss:"), 0)
for pid in (*copies, os.getpid()):
    with open(f"/proc/{pid}/smaps_rollup") as rollup:  # noqa: PTH123 — as small as possible
        for name, *figures in map(str.split, rollup):
            if name in sums:
                sums[name] += int(figures[0]) * 1024
write(sys.argv[1], *sums.values())
until_sampled(known=sys.argv[4])
os.close(end)
for _ in copies:
    os.wait()
