"""A progress bar that is drawn over and over with carriage returns, as tqdm does: bar.py STEPS SECONDS"""

import sys
import time

steps, seconds = int(sys.argv[1]), float(sys.argv[2])
print("before the bar", flush=True)
for step in range(steps + 1):
    sys.stderr.write(f"\r{step * 100 // steps:3d}%|{'#' * (step * 20 // steps):<20}| {step}/{steps}")
    sys.stderr.flush()
    time.sleep(seconds / steps)
sys.stderr.write("\n")
print("after the bar", flush=True)
time.sleep(1.5)
