"""A running recorder for the tests of signals and kills."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import nncftools
from nncftools import Session
from tests.conftest import HANGING_S, burner, command_line
from tests.waiting import until

JOURNAL, SESSION, GO, NOTED = "run.journal.jsonl", "run.json", "go", "noted"
_AT = """
import atexit, importlib, os, signal, sys, threading
place, numbers = sys.argv.pop(1), [int(number) for number in sys.argv.pop(1).split(",")]
threading.Thread(target=threading.Event().wait, daemon=True).start()  # as those of libraries, which block no signal
in_this_thread, place = place.startswith("this thread "), place.removeprefix("this thread ")
def send():
    for number in numbers:
        signal.raise_signal(number) if in_this_thread else os.kill(os.getpid(), number)
if place == "exit":
    atexit.register(send)
else:
    module, name = place.rsplit(".", 1)
    owner = importlib.import_module(module)
    before = getattr(owner, name)
    setattr(owner, name, lambda *words, **options: (send(), before(*words, **options))[1])
from nncftools.__main__ import main
main()
"""


def signalled_at(place: str, numbers: list[int], *words: object) -> list[str]:
    """Return the argument list that runs nncf-tools, which gets signals when it calls a function, or exits."""
    return [sys.executable, "-c", _AT, place, ",".join(str(int(number)) for number in numbers), *map(str, words)]


class Recorder:
    """Records a command that logs its signals and exits with status 9; in its own process group."""

    def __init__(
        self,
        folder: Path,
        *before: str,
        preexec_fn: Callable[[], object] = bool,
        **options: Any,  # noqa: ANN401 — passed on
    ) -> None:
        """Start it; ``before`` is a program that starts the command, with its arguments."""
        self.folder = folder
        words = ("monitor", "-q", "--no-plot", "-i", 0.05)
        command = [*before, *burner("notes", folder / NOTED, folder / GO)]
        self.process = subprocess.Popen(
            command_line(*words, "-o", SESSION, "--", *command),
            cwd=folder,
            preexec_fn=lambda: (os.setpgrp(), preexec_fn()),  # noqa: PLW1509 — this process has one thread
            **options,
        )
        until(lambda: self.noted(with_start=True), "the command's handlers")
        start = until(self._start, "the sampler's start")
        self.sampler: int = start["sampler_pid"]
        self.command: int = start["pid"]

    def _start(self) -> dict[str, Any]:
        lines = (self.folder / JOURNAL).read_text().splitlines(keepends=True)
        starts = [json.loads(line)["start"] for line in lines if line.startswith('{"start"') and line.endswith("\n")]
        return starts[0] if starts else {}

    def noted(self, *, with_start: bool = False) -> list[int]:
        """Return the numbers of the signals that the command got."""
        path = self.folder / NOTED
        numbers = list(map(int, path.read_text().split())) if path.exists() else []
        return numbers if with_start else numbers[1:]

    def until_noted(self, *numbers: int) -> None:
        """Wait until the command has got all of these."""
        until(lambda: set(numbers) <= set(self.noted()), f"signals {numbers}")

    def until_sampled(self, times: int = 5) -> None:
        """Wait for this many more samples, and so for all work that is due before them."""
        known = self.samples()
        until(lambda: self.samples() >= known + times, "samples")

    def samples(self) -> int:
        """Return the number of samples taken."""
        return (self.folder / JOURNAL).read_text().count("\n[")

    def go(self) -> None:
        """Let the command end."""
        (self.folder / GO).touch()

    def status(self) -> int:
        """Let the command end; return our exit status."""
        self.go()
        return self.process.wait(HANGING_S)

    def session(self) -> Session:
        """Return the recorded session."""
        return Session.load(self.folder / SESSION)


def result_of(
    words: Sequence[object],
    folder: Path,
    **options: Any,  # noqa: ANN401 — passed on
) -> subprocess.CompletedProcess[str]:
    """Run a program in a folder, to the end."""
    argv = list(map(str, words))
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False, timeout=HANGING_S, **options)


def state_of(pid: int) -> str:
    """Return the state of a process as in proc(5); empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def changed_package(folder: Path, change: str) -> dict[str, str]:
    """Copy nncf-tools, with a change that its sampler applies to itself at its start; return the environment for it."""
    package = folder / "nncftools"
    package.mkdir(parents=True)
    for part in Path(nncftools.__file__).parent.iterdir():
        (package / part.name).symlink_to(part)
    entry = package / "helper_process.py"
    before, mark, after = entry.read_text().partition("        status = service.main(")
    assert mark
    indented = "".join(f"        {line}\n" for line in change.splitlines())
    entry.unlink()
    entry.write_text(f"{before}{indented}{mark}{after}")
    return {**os.environ, "PYTHONPATH": str(folder)}
