"""Print N numbered lines at once, then hold on for SECONDS or until FILE exists: prints.py N SECONDS|FILE"""

import sys

from holding import hold

for number in range(int(sys.argv[1])):
    print(f"line {number} of the command")
sys.stdout.flush()
hold(sys.argv[2])
