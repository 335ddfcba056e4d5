"""Append each signal that arrives to FILE; end three samples after the first, with status 9: signalled.py FILE"""

import os
import signal
import sys

from sampling import fills, until_sampled

file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def note(number: int, _frame: object) -> None:
    """Write down the signal's name."""
    os.write(file, f"{signal.Signals(number).name}\n".encode())


for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(each, note)
os.write(file, b"ready\n")
for _ in fills():
    if os.fstat(file).st_size > len("ready\n"):
        break
until_sampled(3)
sys.exit(9)
