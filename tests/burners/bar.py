"""Draw a progress bar over and over with carriage returns, as tqdm does: bar.py STEPS FILE FILE

It stops halfway until the first file exists; the program ends when the second one does.
"""

import sys

from holding import hold

steps = int(sys.argv[1])
print("before the bar", flush=True)
for step in range(steps + 1):
    sys.stderr.write(f"\r{step * 100 // steps:3d}%|{'#' * (step * 20 // steps):<20}| {step}/{steps}")
    sys.stderr.flush()
    if step == steps // 2:
        hold(sys.argv[2])
sys.stderr.write("\n")
print("after the bar", flush=True)
hold(sys.argv[3])
