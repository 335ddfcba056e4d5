"""Keep COUNT cores busy for SECONDS; write a line when all of them are: busy.py COUNT SECONDS"""  # noqa: D400 — a usage line

import os
import sys
import time

end = time.monotonic() + float(sys.argv[2])
count = int(sys.argv[1])
for _ in range(count):
    if os.fork() == 0:
        while time.monotonic() < end:
            pass
        os._exit(0)
os.write(1, b"ready\n")
for _ in range(count):
    os.wait()
