"""Burn 0.2 s of CPU in each of CHILDREN and write what wait4 tells of all to FILE: rusage.py FILE CHILDREN"""

import json
import os
import resource
import sys
import time

for _ in range(int(sys.argv[2])):
    if os.fork() == 0:
        while time.process_time() < 0.2:
            held = bytearray(10 << 20)
            held[::4096] = b"x" * len(held[::4096])
        os._exit(0)
    os.wait()
own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
told = [
    own.ru_utime + children.ru_utime,
    own.ru_stime + children.ru_stime,
    own.ru_minflt + children.ru_minflt,
    own.ru_majflt + children.ru_majflt,
]
with open(sys.argv[1], "w") as file:  # noqa: PTH123 — as small as possible
    json.dump(told, file)
