"""Print N numbered lines at once, then hold on for SECONDS: prints.py N SECONDS"""

import sys
import time

for number in range(int(sys.argv[1])):
    print(f"line {number} of the command")
sys.stdout.flush()
time.sleep(float(sys.argv[2]))
