"""Append each signal that arrives to FILE and end 0.5 s after the first: signalled.py FILE"""

import os
import signal
import sys
import time

file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def note(number: int, _frame: object) -> None:
    """Write down the signal's name."""
    os.write(file, f"{signal.Signals(number).name}\n".encode())


for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(each, note)
os.write(file, b"ready\n")
begin = time.monotonic()
while os.fstat(file).st_size == len("ready\n") and time.monotonic() < begin + 60:
    time.sleep(0.01)
end = time.monotonic() + 0.5
while time.monotonic() < end:
    time.sleep(0.05)
sys.exit(9)
