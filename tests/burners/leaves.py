"""Keeps 80 MiB, works with 120 MiB in a function, and ends at once: leaves.py keeps|frees normally|suddenly"""

import os
import sys
import time

kept = []


def keep() -> None:
    """Take memory that stays."""
    kept.append(b"x" * (80 << 20))
    time.sleep(0.15)


def work() -> int:
    """Take memory that is freed on return."""
    block = b"y" * (120 << 20)
    time.sleep(0.15)
    return len(block)


time.sleep(0.3)
keep()
work()
if sys.argv[1] == "frees":
    kept.clear()
if sys.argv[2] == "suddenly":
    time.sleep(0.3)
    os._exit(0)
