"""Hold as many times 20 MiB as the rank that the environment names, plus one: rank.py FOLDER

Writes the own RSS into FOLDER; ends when all ranks of the job were sampled while all of them held theirs.
"""

import os
import sys

from sampling import own, touched, until_file, until_sampled, write

number = int(os.environ.get("RANK") or os.environ["OMPI_COMM_WORLD_RANK"])
size = int(os.environ.get("WORLD_SIZE") or os.environ["OMPI_COMM_WORLD_SIZE"])
held = touched(20 * (number + 1))
for stage in ("holds", "sampled"):
    write(f"{sys.argv[1]}/{stage}-{number}", own("VmRSS"))
    until_file(*(f"{sys.argv[1]}/{stage}-{each}" for each in range(size)))
    until_sampled()
print(number)
