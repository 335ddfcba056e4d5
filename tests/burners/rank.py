"""Hold as many times 20 MiB as the rank that the environment names, plus one, for a second."""

import os
import sys
import time

number = int(os.environ.get("RANK") or os.environ["OMPI_COMM_WORLD_RANK"])
held = bytearray((20 << 20) * (number + 1))
for place in range(0, len(held), 4096):
    held[place] = 1
print(number, file=sys.stdout)
time.sleep(1)
