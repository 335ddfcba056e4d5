"""Touch MIB mebibytes for SECONDS after a sample and write the own high-water mark: spike.py FILE MIB SECONDS SAMPLES

Ends when so many more samples were taken.
"""

import sys
import time

from sampling import own, touched, until_first_sample, until_sampled, write

until_first_sample()
held = touched(sys.argv[2])
time.sleep(float(sys.argv[3]))
del held
until_sampled(int(sys.argv[4]))
write(sys.argv[1], own("VmHWM"))
