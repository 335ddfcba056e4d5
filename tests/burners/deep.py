"""Takes 60 MiB at the bottom of a stack, in several threads: deep.py DEPTH THREADS."""

from __future__ import annotations

import sys
import threading
import time

MIB = 1 << 20
held: list[bytearray] = []
sys.setrecursionlimit(100_000)
threading.stack_size(256 * MIB if int(sys.argv[1]) > 1_000 else 0)


def down(depth: int) -> None:
    """Call itself ``depth`` times."""
    if depth:
        down(depth - 1)
    else:
        for _ in range(60):
            held.append(bytearray(b"x") * MIB)
            time.sleep(0.01)


waiting = threading.Event()
for _ in range(int(sys.argv[2]) - 1):
    threading.Thread(target=waiting.wait, daemon=True).start()
taking = threading.Thread(target=down, args=(int(sys.argv[1]),))
taking.start()
taking.join()
waiting.set()
