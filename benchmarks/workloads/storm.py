"""Start and reap PROGRAM COUNT times, four at a time; write the seconds that took to FILE: storm.py FILE PROGRAM COUNT"""  # noqa: D400, E501 — a usage line

import os
import sys
import time

AT_ONCE = 4

program, count = sys.argv[2], int(sys.argv[3])
begin = time.monotonic()
for number in range(count):
    if number >= AT_ONCE:
        os.wait()
    os.posix_spawn(program, [program], {})
for _ in range(min(count, AT_ONCE)):
    os.wait()
taken = time.monotonic() - begin
with open(sys.argv[1], "w") as file:  # noqa: PTH123 — as small as possible
    file.write(str(taken))
