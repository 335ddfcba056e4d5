"""Print lines in marked calls, wait until it is let go, and end: burner.py FOLDER STATUS [MODEL].

FOLDER gets the files ``begun`` and ``ended``. It goes on when ``go`` exists; ``crowd`` names what it starts before.
"""

import os
import signal
import sys
import threading
import time

STEPS = 4
MOST_S = 400
_WAIT_S = 0.005
_SAMPLES_S = 0.15
"""Three intervals of a recording: so long it goes on after the fault."""


def step(number: int) -> None:
    """Print a line; a call that is marked."""
    print(f"line {number}", flush=True)
    time.sleep(0.02)


def main() -> None:
    """Run."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's own way to end writes a traceback
    folder, status = sys.argv[1:3]
    note(folder, "begun", os.getpid())
    for number in range(1, STEPS):
        step(number)
    children: list[int] = []
    deadline = time.monotonic() + MOST_S
    while not os.path.exists(f"{folder}/go"):  # noqa: PTH110 — as small as possible
        if time.monotonic() > deadline:
            sys.exit("waited in vain")
        if not children and os.path.exists(f"{folder}/crowd"):  # noqa: PTH110 — the same
            children = crowd(folder)
            note(folder, "crowded", len(children))
        time.sleep(_WAIT_S)
    for pid in filter(None, children):
        os.kill(pid, signal.SIGKILL)
    for pid in filter(None, children):
        os.waitpid(pid, 0)
    step(STEPS)
    time.sleep(_SAMPLES_S)
    print("told", file=sys.stderr, flush=True)
    note(folder, "ended", os.getpid())
    os._exit(int(status))  # without waiting for threads


def crowd(folder: str) -> list[int]:
    """Start as many processes or threads as asked for; return the processes, and 0 for each thread."""
    with open(f"{folder}/crowd") as file:  # noqa: PTH123 — as small as possible
        kind, number = file.read().split()
    if kind == "processes":
        return [child() for _ in range(int(number))]
    threading.stack_size(65536)
    for _ in range(int(number)):
        threading.Thread(target=time.sleep, args=(MOST_S,), daemon=True).start()
    return [0] * int(number)


def child() -> int:
    """Start a copy that waits for its end."""
    pid = os.fork()
    if pid == 0:
        time.sleep(MOST_S)
        os._exit(0)
    return pid


def note(folder: str, name: str, number: int) -> None:
    """Write a number to a file that appears whole."""
    with open(f"{folder}/.{name}", "w") as file:  # noqa: PTH123 — as small as possible
        file.write(str(number))
    os.rename(f"{folder}/.{name}", f"{folder}/{name}")  # noqa: PTH104 — the same


if __name__ == "__main__":
    import burner  # a module of this name, whose calls can be marked with any Python

    burner.main()
