"""LEVELS processes, each the child of the one before and holding MIB mebibytes: levels.py FILE LEVELS MIB SAMPLES

Each writes its RSS to FILE; they end when all together were in so many samples.
"""

import subprocess
import sys

from sampling import own, touched, until_sampled, write

file, levels, size, samples = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
held = touched(size)
write(file, own("VmRSS"))
if levels > 1:
    words = [sys.executable, "-S", "-E", __file__, file, str(levels - 1), size, str(samples)]
    subprocess.run(words, check=True)
else:
    until_sampled(samples)
