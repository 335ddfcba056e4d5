"""Run a command, write what it cost as JSON, and end when all that it left behind has ended.

launcher.py JOB, a JSON object:

- ``result``: the file that is written
- ``seconds``: after them, or at a SIGALRM, all are killed
- ``size``: limit of the address space of each process, in bytes
- ``command``: what is measured
- ``watched``: a program for a command that attaches, whose ``{pid}`` becomes its PID; or nothing
- ``beside``: a program that runs during the measurement and prints a line when it is ready; or nothing

A small process of its own, because a child begins with the resident memory of its parent: started by the benchmark
itself, no command could have a ``ru_maxrss`` below the benchmark's. It may be the first process of a PID namespace, so
``beside`` and ``watched`` are started here, where the command sees them. Runs without site packages.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
import time

PID = "{pid}"
PR_SET_CHILD_SUBREAPER = 36
NOT_EXECUTED = 126
_PAUSED = ("sh", "-c", 'sleep 0.5; exec "$@"', "sh")
"""Begins a moment later with the same PID: what a command that attaches needs to be there before."""


def children() -> list[int]:
    """Return the PIDs of this process's children."""
    with open(f"/proc/self/task/{os.getpid()}/children") as file:  # noqa: PTH123 — as small as possible
        return [int(pid) for pid in file.read().split()]


def start(words: list[str], size: int, output: int | None = None, *, group: bool = False) -> int:
    """Start a program, in a process group of its own if asked, and return its PID."""
    pid = os.fork()
    if pid == 0:
        try:
            if group:
                os.setsid()
            if output is not None:
                os.dup2(output, 1)
            resource.setrlimit(resource.RLIMIT_AS, (size, size))
            os.execvp(words[0], words)  # noqa: S606 — no shell is meant
        except OSError as error:
            os.write(2, f"{words[0]}: {error.strerror}\n".encode())
            os._exit(NOT_EXECUTED)
    return pid


def start_ready(words: list[str], size: int) -> int:
    """Start a program and return its PID once it has printed."""
    reading, writing = os.pipe()
    pid = start(words, size, writing, group=True)
    os.close(writing)
    os.read(reading, 1)
    return pid


def wait_for(pid: int, groups: set[int]) -> tuple[int, resource.struct_rusage]:
    """Return status and usage of one child; the others are reaped as they end, and leave ``groups``."""
    while True:
        ended, status, usage = os.wait4(-1, 0)
        if ended == pid:
            return status, usage
        groups.discard(ended)


def main(  # noqa: PLR0913, PLR0917 — the job
    result: str, seconds: float, size: int, command: list[str], watched: list[str], beside: list[str]
) -> None:
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
    groups: set[int] = set()
    if beside:
        groups.add(start_ready(beside, size))
    if watched:
        pid = start([*_PAUSED, *watched], size, group=True)
        groups.add(pid)
        command = [word.replace(PID, str(pid)) for word in command]
    begin = time.monotonic()
    status, usage = wait_for(start(command, size), groups)
    cost = {
        "code": os.waitstatus_to_exitcode(status),
        "hung": hung,
        "wall_s": time.monotonic() - begin,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "max_rss": usage.ru_maxrss * 1024,
    }
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    while children():
        os.wait()
    with open(result, "w") as file:  # noqa: PTH123 — as small as possible
        json.dump(cost, file)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
