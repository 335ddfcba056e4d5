"""Append the number of each signal that arrives to FILE; end with status 9 when GO exists: notes.py FILE GO"""

import os
import signal
import sys

from sampling import until_file

NOT_NOTED = {signal.SIGKILL, signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCHLD}

file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def note(number: int, _frame: object) -> None:
    """Write down the signal's number."""
    os.write(file, f"{number}\n".encode())


for each in signal.valid_signals() - NOT_NOTED:
    signal.signal(each, note)
os.write(file, b"0\n")
until_file(sys.argv[2])
sys.exit(9)
