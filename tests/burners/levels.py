"""A process of LEVELS levels, each touching MIB mebibytes while its children live: levels.py LEVELS MIB SECONDS"""

import subprocess
import sys
import time

levels, size, seconds = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
held = bytearray(int(size * 2**20))
held[::4096] = b"x" * len(held[::4096])
if levels > 1:
    subprocess.run([sys.executable, "-S", "-E", __file__, str(levels - 1), *sys.argv[2:]], check=True)
else:
    time.sleep(seconds)
