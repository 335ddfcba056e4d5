"""Run a command, write what it cost to RESULT as JSON, and end when all that it left behind has ended.

launcher.py RESULT SECONDS BYTES COMMAND [ARGUMENT]...

A small process of its own, because a child begins with the resident memory of its parent: started by the benchmark
itself, no command could have a ``ru_maxrss`` below the benchmark's. After SECONDS, or at a SIGALRM, all are killed;
BYTES limits the address space of each process. Runs without site packages.
"""

import ctypes
import json
import os
import resource
import signal
import sys
import time

PR_SET_CHILD_SUBREAPER = 36
NOT_EXECUTED = 126


def children() -> list[int]:
    """Return the PIDs of this process's children."""
    with open(f"/proc/self/task/{os.getpid()}/children") as file:  # noqa: PTH123 — as small as possible
        return [int(pid) for pid in file.read().split()]


def start(words: list[str], size: int) -> int:
    """Start the command and return its PID."""
    pid = os.fork()
    if pid == 0:
        try:
            resource.setrlimit(resource.RLIMIT_AS, (size, size))
            os.execvp(words[0], words)  # noqa: S606 — no shell is meant
        except OSError as error:
            os.write(2, f"{words[0]}: {error.strerror}\n".encode())
            os._exit(NOT_EXECUTED)
    return pid


def main(result: str, seconds: float, size: int, words: list[str]) -> None:
    """Run, wait, write."""
    hung = False

    def kill(*_: object) -> None:
        nonlocal hung
        hung = True
        for child in children():  # their own children are re-parented to this process and killed in the next round
            os.kill(child, signal.SIGKILL)
        signal.setitimer(signal.ITIMER_REAL, 0.1)

    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGALRM, kill)
    signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C: the benchmark sends SIGALRM
    signal.setitimer(signal.ITIMER_REAL, seconds)
    begin = time.monotonic()
    pid = start(words, size)
    _, status, usage = os.wait4(pid, 0)
    cost = {
        "code": os.waitstatus_to_exitcode(status),
        "hung": hung,
        "wall_s": time.monotonic() - begin,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "max_rss": usage.ru_maxrss * 1024,
    }
    while children():
        os.wait()
    with open(result, "w") as file:  # noqa: PTH123 — as small as possible
        json.dump(cost, file)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
