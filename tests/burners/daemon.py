"""Start a daemon (double fork, setsid) that touches MIB mebibytes, and outlive it: daemon.py FILE MIB

The daemon writes its RSS to FILE and ends when it was sampled.
"""

import os
import sys

from sampling import own, touched, until_sampled, write

lives, hold = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        held = touched(sys.argv[2])
        write(sys.argv[1], own("VmRSS"))
        until_sampled()
    os._exit(0)
os.close(hold)
os.wait()
os.read(lives, 1)
until_sampled()
