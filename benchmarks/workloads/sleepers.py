"""Fork COUNT children that sleep, and end with them SECONDS after the start; write a line when all of them are there.

sleepers.py COUNT SECONDS
"""

import os
import sys
import time

end = time.monotonic() + float(sys.argv[2])
count = int(sys.argv[1])
for _ in range(count):
    if os.fork() == 0:
        time.sleep(max(0.0, end - time.monotonic()))
        os._exit(0)
os.write(1, b"ready\n")
time.sleep(max(0.0, end - time.monotonic()))
for _ in range(count):
    os.wait()
