"""Fill the disk of FILE while holding 50 MiB, and end with status 7: fills.py FILE TOLD [stays]

When the file TOLD says that a journal cannot be written, the space is given back, unless it ``stays`` full.
"""

import contextlib
import os
import sys

from sampling import fills, touched, until_first_sample, until_sampled

path, told, *stays = sys.argv[1:]
until_first_sample()
file = os.open(path, os.O_WRONLY | os.O_CREAT)
for size in (4096, 1):
    with contextlib.suppress(OSError):
        while True:
            os.write(file, b"x" * size)
held = touched(50)
for _ in fills():
    with open(told) as text:  # noqa: PTH123 — as small as possible
        if "cannot be written" in text.read():
            break
if not stays:
    os.ftruncate(file, 0)
    until_sampled(3)
sys.exit(7)
