"""Burn 0.1 s of CPU in each of CHILDREN and write the figures of wait4 for all to FILE: rusage.py FILE CHILDREN"""

import os
import resource
import sys
import time

from sampling import write

for _ in range(int(sys.argv[2])):
    if os.fork() == 0:
        while time.process_time() < 0.1:
            held = bytearray(10 << 20)
            held[::4096] = b"x" * len(held[::4096])
        os._exit(0)
    os.wait()
own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
write(
    sys.argv[1],
    own.ru_utime + children.ru_utime + own.ru_stime + children.ru_stime,
    own.ru_minflt + children.ru_minflt,
)
os._exit(0)  # at once: what an interpreter does at its end is in no figure
