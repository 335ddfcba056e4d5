"""One run of a command: its folders, its terminal, and where it is. It runs as the first process of a PID namespace."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from tests.cli.forecast import models
from tests.faults.commands import (
    COMMAND,
    COMMAND_LINE,
    DATED,
    FOLDER,
    HELPER,
    OUT,
    ROOT,
    SAMPLER,
    Command,
    burner,
    launch,
)
from tests.memory_group import V1
from tests.trust.recorder import state_of

GROUP = "nncf-tools-faults"
"""How the memory groups begin that are made for runs."""
LONGEST_S = 120.0
"""Nothing takes longer, also on a busy machine."""
_LOOK_EVERY_S = 0.005
_COLUMNS, _ROWS = 100, 30
_KINDS = {SAMPLER: "helper_process.py sampler", HELPER: "helper_process.py stacks"}
_SEQUENCE = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[()][A-Z0-9]|\x1b[=>78]|\r")
_VIEW = b"\x1b[?1049h"
"""Switches to the other screen."""
_DATA = ROOT / "tests" / "data"
_INPUTS = {
    "measured.json": "runs/base-1.json",
    "compared.json": "runs/new-1.json",
    "data.csv": "made_up_compression.csv",
}
_PYTHON = """#!/bin/sh
if [ "$1" != -c ]; then
    [ -e {folder}/begun ] || {{ echo $$ > {folder}/.begun; mv {folder}/.begun {folder}/begun; }}
    until [ -e {folder}/go ]; do sleep 0.02; done
fi
{python} -S -E {root}/tests/burners/sweep_python.py "$@"
status=$?
[ "$1" = -c ] || echo $$ > {folder}/ended
exit $status
"""
"""Stands in for a Python that has NNCF: it waits as the burner does."""


class NotReachedError(Exception):
    """The command did not come to the moment of its fault."""


class Terminal:
    """A terminal, which becomes that of this session."""

    def __init__(self) -> None:
        self._master, self.slave = os.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        with contextlib.suppress(OSError):  # a session of ours already
            os.setsid()
        fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)
        self._modes = termios.tcgetattr(self.slave)
        self.written = b""
        os.set_blocking(self._master, False)

    def read(self) -> None:
        """Take what was written so far."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._master, 1 << 16):
                self.written += data

    def press(self, keys: bytes) -> None:
        """Press keys, as far as the terminal takes them."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._master, keys)

    @property
    def text(self) -> str:
        """What was written, without control sequences."""
        return _SEQUENCE.sub(b"", self.written).decode(errors="replace")

    def changes(self) -> list[str]:
        """Return what is not as it was before."""
        self.read()
        found = [] if termios.tcgetattr(self.slave) == self._modes else ["its modes differ"]
        if self.written.count(_VIEW) != self.written.count(b"\x1b[?1049l"):
            found.append("the other screen is on")
        if self.written.rfind(b"\x1b[?25l") > self.written.rfind(b"\x1b[?25h"):
            found.append("the cursor is hidden")
        return found


class Run:
    """One command in folders, a terminal and a PID namespace of its own, up to a moment and then to its end."""

    def __init__(self, command: Command, moment: str, root: Path, seed: str) -> None:
        """Make the folders; ``seed`` decides what is left to chance."""
        self.command, self.moment, self.root = command, moment, root
        self.random = random.Random(seed)  # noqa: S311 — no secret
        self.folder, self.work, self.spare = root / "control", root / "disk", root / "spare"
        for folder in (self.folder, self.work, self.spare):
            folder.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", self.work], check=True)
        lay_out(self.work, command)
        python = self.folder / "python"
        python.write_text(_PYTHON.format(folder=self.folder, python=sys.executable, root=ROOT))
        python.chmod(0o755)
        (self.work / "victim").write_text("mine")
        (self.work / "victim").chmod(0o600)
        self.environment = environment(self.spare)
        self.traps: list[Path] = []
        """The files and links that another user put in the place of ours."""
        self.before_start: list[Callable[[], object]] = []
        """What the process that becomes the command line does first: limits."""
        self.terminal = Terminal()
        self.seen = 0
        """The samples in the journal when the fault came."""
        self.recorder: subprocess.Popen[bytes] | None = None
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the command; ``watch`` finds a recording that runs."""
        if self.command.name == "watch":
            words = ["monitor", "-q", "-i", "0.05", "-o", f"{OUT}/run.json", "--", *burner(self.folder)]
            self.recorder = self._started([sys.executable, "-m", "nncftools", *words], subprocess.DEVNULL, [])
            self.until(lambda: self.samples() >= 1, "a recording to watch")

    def launch(self) -> None:
        """Start the command line."""
        output = (self.folder / "output").open("wb") if self.command.prints else None
        words = launch(self.command, self.moment, self.folder)
        self.process = self._started(words, output or self.terminal.slave, self.before_start, in_front=True)
        if output:
            output.close()

    def _started(
        self,
        words: Sequence[str],
        output: int | BinaryIO,
        first: Sequence[Callable[[], object]],
        *,
        in_front: bool = False,
    ) -> subprocess.Popen[bytes]:
        def prepare() -> None:
            os.setpgrp()
            if in_front:
                signal.signal(signal.SIGTTOU, signal.SIG_IGN)
                os.tcsetpgrp(self.terminal.slave, os.getpid())
                signal.signal(signal.SIGTTOU, signal.SIG_DFL)
            for act in first:
                act()

        return subprocess.Popen(
            words,
            cwd=self.work,
            env=self.environment,
            stdin=self.terminal.slave if in_front else subprocess.DEVNULL,
            stdout=output,
            stderr=self.terminal.slave if in_front else subprocess.DEVNULL,
            preexec_fn=prepare,  # noqa: PLW1509 — this process has one thread
        )

    def reach(self) -> None:
        """Wait until the command is at its moment."""
        if self.moment in {"end", "saving"} and self.command.waits:
            self.go()
        if self.moment == "end" and self.recorder is not None:
            self.until(lambda: _VIEW in self.terminal.written, "the view")
            self.go()
        if self.moment in self.command.gates:
            self.until((self.folder / "reached").exists, f"the moment {self.moment!r}")
        elif self.moment == "middle" and self.command.waits:
            needs_samples = self.command.records
            self.until(lambda: self.has("begun") and self.samples() >= 2 * needs_samples, "samples")
            if HELPER in self.command.processes:
                self.until(lambda: self.pids(HELPER), "the helper")
        elif self.moment == "middle":
            self.until(lambda: _VIEW in self.terminal.written, "the view")
        elif self.moment == "end":
            self.until(lambda: all((self.work / name).exists() for name in self.command.outputs), "the outputs")
        if self.moment == "end" and self.has("ended"):
            pid = int((self.folder / "ended").read_text())
            self.until(lambda: state_of(pid) in {"", "Z"}, "the command's end")
        self.seen = self.samples()

    def until(self, look: Callable[[], object], what: str, longest_s: float = LONGEST_S) -> None:
        """Wait for something that can be seen. Raises NotReachedError."""
        deadline = time.monotonic() + longest_s
        while not look():
            self.terminal.read()
            if self.process is not None and self.process.poll() is not None and not look():
                raise NotReachedError(f"it ended with {self.process.returncode} before {what}")
            if time.monotonic() > deadline:
                raise NotReachedError(f"waited in vain for {what}")
            time.sleep(_LOOK_EVERY_S)

    def wait(self, process: subprocess.Popen[bytes], longest_s: float) -> int | None:
        """Return the status of a process as a shell has it; None if it does not end."""
        deadline = time.monotonic() + longest_s
        while process.poll() is None and time.monotonic() < deadline:
            self.terminal.press(self.command.keys)
            self.terminal.read()
            time.sleep(_LOOK_EVERY_S)
        code = process.returncode
        return 128 - code if code is not None and code < 0 else code

    def go(self) -> None:
        """Let the burner end."""
        (self.folder / "go").touch()

    def go_on(self) -> None:
        """Let the command line go on behind its moment."""
        (self.folder / "passed").touch()

    def has(self, name: str) -> bool:
        """Return whether the burner made this file."""
        return (self.folder / name).exists()

    def about_to_open(self) -> Path | None:
        """Return the file that the command line is about to open; None if that is not known."""
        is_known = self.moment == "start" and self.has("reached")
        return self.work / (self.folder / "reached").read_text() if is_known else None

    def samples(self) -> int:
        """Return the number of samples in the journal."""
        with contextlib.suppress(OSError):
            return sum(
                path.read_bytes().count(b"\n[")
                for path in self.work.glob(f"{OUT}/**/*.journal.jsonl")
                if path.is_file()
            )
        return 0

    def pids(self, role: str) -> list[int]:
        """Return the processes that have a role."""
        if role == COMMAND_LINE:
            return [self.process.pid] if self.process is not None else []
        if role == COMMAND:
            return [int((self.folder / "begun").read_text())] if self.has("begun") else []
        return [pid for pid, words in processes().items() if _KINDS[role] in words]


def lay_out(work: Path, command: Command) -> None:
    """Make the inputs of a command, and the folder of its outputs."""
    for name in ("in/model", OUT, "precious"):
        (work / name).mkdir(parents=True)
    for name, source in _INPUTS.items():
        shutil.copy(_DATA / source, work / "in" / name)
    if command.inputs == DATED:
        for name in DATED:
            (work / name).parent.mkdir()
            shutil.copy(work / "in/measured.json", work / name)
    shutil.copy(FOLDER / "steps.py", work / "in/test_step.py")
    models.write(work / "in/layers", 8)
    model = work / "in/model"
    (model / "config.json").write_text('{"hidden_size": 576, "intermediate_size": 1536}')
    (model / "openvino_model.xml").touch()
    (model / "openvino_model.bin").write_bytes(bytes(4000))
    (work / "in/text.txt").write_text("Each process has memory of its own, and a kernel that counts it. " * 8)
    (work / "in/grid.toml").write_text('[[configuration]]\nname = "int8"\nmode = "int8_asym"\n')


def environment(spare: Path) -> dict[str, str]:
    """Return the environment of a command; ``spare`` is for temporary files."""
    return {
        "FAULTS_CONTROL": str(spare.parent / "control"),
        **{name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ},
        "TERM": "xterm-256color",
        "TMPDIR": str(spare),
        "PYTHONDONTWRITEBYTECODE": "1",
        "XDG_CACHE_HOME": str(spare / "cache"),
        "MPLCONFIGDIR": os.environ.get("MPLCONFIGDIR", str(Path.home() / ".cache/matplotlib")),
    }


def processes() -> dict[int, str]:
    """Return the command lines of all processes here but this one; those that ended have none."""
    found = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and int(path.name) != os.getpid():
            with contextlib.suppress(OSError):
                words = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if words:
                    found[int(path.name)] = words
    return found


def own_group() -> Path | None:
    """Return the memory group of this process, if it was made for it."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    name = next((line.split(":", 2)[2] for line in lines if ":memory:" in line), "")
    return V1 / name.lstrip("/") if GROUP in name else None
