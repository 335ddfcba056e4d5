"""The faults, and how each is made to a command that is at its moment."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.faults.commands import BURNER_STATUS, COMMAND, COMMAND_LINE, FOLDER, HELPER, OUT, SAMPLER, Command
from tests.faults.run import LONGEST_S, Run, own_group
from tests.memory_group import IS_POSSIBLE
from tests.trust.recorder import state_of

OTHER = 65534
"""A user with ordinary permissions."""
MEMORY = 64 << 20
ADDRESS_SPACE = 60_000 << 10
_DESCRIPTORS = 32
_CROWDS = {"processes": 3000, "threads": 5000}
_CLOCK_STEP_S = 3600
_COMPILER = shutil.which("cc")
_SERIES = {"fit", "sweep", "forecast"}
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_SIGNALS = {
    "kill": signal.SIGKILL,
    "stop": signal.SIGSTOP,
    "term": signal.SIGTERM,
    "int": signal.SIGINT,
    "hup": signal.SIGHUP,
}


class Fault(NamedTuple):
    """What happens at a moment."""

    name: str
    act: Callable[[Run], None]
    process: str = ""
    """The process that gets a signal; empty if that is not the fault."""
    signal: signal.Signals | None = None

    def request(self, run: Run) -> signal.Signals | None:
        """Return the signal by which a command is asked to end.

        It is the fault itself, also through the end of what is run: the sampler passes SIGTERM on. (Where several runs
        are made, the end of one is not the end of all.) In the middle of another fault, chance decides.
        """
        is_one_run = COMMAND in run.command.processes and run.command.name not in _SERIES
        to_end = {COMMAND_LINE, SAMPLER, COMMAND} if is_one_run else {COMMAND_LINE}
        if self.signal is not None:
            return self.signal if self.signal in _ENDING and self.process in to_end else None
        is_crowd = self.name[0].isdigit()  # it would outlive its parent
        is_chosen = run.moment == "middle" and COMMAND in run.command.processes and not is_crowd
        return run.random.choice((None, None, *_ENDING)) if is_chosen else None


def _signalled(name: str, process: str) -> Fault:
    number = _SIGNALS[name]

    def act(run: Run) -> None:
        for pid in run.pids(process):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
                if number == signal.SIGSTOP:
                    run.until(lambda pid=pid: state_of(pid) in {"", "Z", "T"}, "the stop")
        if number == signal.SIGSTOP:
            _continue(run, process)

    return Fault(f"{name} {process}", act, process, number)


def _continue(run: Run, process: str) -> None:
    """Let the burner end where another process is stopped; then continue that."""
    run.go_on()
    if process != COMMAND and run.has("begun") and run.command.records:
        run.go()
        with contextlib.suppress(Exception):  # a command that was not started never ends
            run.until(lambda: run.has("ended"), "the command's end", 1.0 if run.command.name in _SERIES else 5.0)
    for pid in run.pids(process):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _fill(run: Run) -> None:
    with contextlib.suppress(OSError), (run.work / "filler").open("wb", buffering=0) as file:
        for size in (1 << 16, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))


def _make_read_only(run: Run) -> None:
    """Nothing can be made or replaced; a file that is open can be written, as on a disk that is mounted anew."""
    folders = [run.work, *(path for path in (run.work / OUT).rglob("*") if path.is_dir()), run.work / OUT]
    subprocess.run(["chattr", "+i", *folders], check=True)


def _remove(run: Run) -> None:
    gone = (run.work / OUT).rename(run.work / "gone")
    while gone.exists():  # meanwhile the command may make files in it
        shutil.rmtree(gone, ignore_errors=True)


def _swap(run: Run) -> None:
    _exchange(run, run.work / OUT)


def _swap_parent(run: Run) -> None:
    _exchange(run, (run.work / OUT).parent)


def _exchange(run: Run, folder: Path) -> None:
    """Put another user's folder in the place of ours, with a trap for each file."""
    folder.rename(run.work / "taken")
    out = run.work / OUT
    out.mkdir(parents=True)
    _give(folder)
    _give(out)
    for name in run.command.outputs or run.command.inputs:
        _trap(run, run.work / name, "link")


def _give(folder: Path) -> None:
    os.chown(folder, OTHER, OTHER)
    folder.chmod(0o777)


def _take_over(kind: str) -> Callable[[Run], None]:
    """Give the folder to another user, who sets traps of a kind in it."""

    def act(run: Run) -> None:
        _give(run.work / OUT)
        for path in _places(run):
            _trap(run, path, kind)

    return act


def _trap(run: Run, path: Path, kind: str) -> None:
    with contextlib.suppress(FileExistsError):
        path.parent.mkdir(parents=True)
        _give(path.parent)
    with contextlib.suppress(OSError):
        path.unlink()
    with contextlib.suppress(FileExistsError, IsADirectoryError):
        if kind == "file":
            path.write_text("theirs")
        elif kind == "hard link" and path.suffix:
            path.hardlink_to(run.work / "victim")
        else:
            path.symlink_to(run.work / ("victim" if path.suffix != ".sweep" else "precious"))
        if kind != "hard link":
            os.chown(path, OTHER, OTHER, follow_symlinks=False)
        if kind != "hard link" and (run.moment != "saving" or path.parent.stat().st_uid == OTHER):
            run.traps.append(path)  # in a folder of ours, nobody can set a trap between the last look and the removal


def _special(kind: int) -> Callable[[Run], None]:
    def act(run: Run) -> None:
        for path in _places(run, may_be_input=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(IsADirectoryError):
                path.unlink(missing_ok=True)
                os.mknod(path, kind | 0o666, os.makedev(1, 5) if kind == stat.S_IFCHR else 0)

    return act


def _places(run: Run, *, may_be_input: bool = False) -> list[Path]:
    """Return files for traps: the one that is about to be opened, one by chance before, later all outputs."""
    command = run.command
    opened = run.about_to_open()
    if opened is not None and (may_be_input or not opened.is_relative_to(run.work / "in")):
        return [opened]
    outputs = [run.work / name for name in command.outputs or command.inputs]
    if run.moment in {"before", "start"}:
        inputs = [run.work / name for name in command.inputs]
        return [run.random.choice(inputs if may_be_input and inputs else outputs)]
    out = run.work / OUT
    there = [path for path in out.rglob("[!.]*") if path.is_file() and "/." not in str(path)]  # what is hidden is ours
    return [*dict.fromkeys([*outputs, *there])]


def _limit_descriptors(run: Run) -> None:
    """Allow few before the start, later not one more."""
    if run.moment == "before":
        run.before_start.append(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (_DESCRIPTORS, _DESCRIPTORS)))
    for role in run.command.processes:
        for pid in run.pids(role) if role != COMMAND else ():
            with contextlib.suppress(OSError):
                used = {int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()}
                most = next(number for number in range(len(used) + 1) if number not in used)
                resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, most))


def _limit_memory(run: Run) -> None:
    group = own_group()
    assert group is not None
    limited = group / "limited"
    limited.mkdir()
    (limited / "memory.limit_in_bytes").write_text(str(MEMORY))
    entry = limited / "cgroup.procs"
    if run.moment == "before":
        run.before_start.append(lambda: entry.write_text("0"))
    for role in run.command.processes:
        for pid in run.pids(role):
            with contextlib.suppress(OSError):
                entry.write_text(str(pid))


def _limit_address_space(run: Run) -> None:
    """Allow little before the start, later not one page more."""
    if run.moment == "before":
        run.before_start.append(lambda: resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE)))
    for role in run.command.processes:
        for pid in run.pids(role) if role != COMMAND else ():
            with contextlib.suppress(OSError):
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
                size = pages * resource.getpagesize()
                resource.prlimit(pid, resource.RLIMIT_AS, (size, size))


def _crowd(kind: str) -> Callable[[Run], None]:
    def act(run: Run) -> None:
        (run.folder / ".crowd").write_text(f"{kind} {_CROWDS[kind]}")
        (run.folder / ".crowd").rename(run.folder / "crowd")
        run.until(lambda: run.has("crowded"), "the crowd", 3 * LONGEST_S)
        known = run.samples()
        run.until(lambda: run.samples() > known, "a sample of the crowd")

    return act


def _step_clock(seconds: int) -> Callable[[Run], None]:
    def act(run: Run) -> None:
        (run.folder / ".clock").write_text(f"{seconds:+d}")
        (run.folder / ".clock").rename(run.folder / "clock")

    return act


def prepare(run: Run, fault: Fault) -> None:
    """Do what a fault needs before anything starts."""
    if fault.name.startswith("clock"):
        library = run.folder / "clock.so"
        words = ["cc", "-shared", "-fPIC", "-O1", "-o", library, FOLDER / "clock.c", "-ldl"]
        subprocess.run(words, check=True)
        run.environment.update(LD_PRELOAD=str(library), FAULTS_CLOCK=str(run.folder / "clock"))


_PROCESSES = (COMMAND_LINE, SAMPLER, HELPER, COMMAND)
FAULTS = {
    fault.name: fault
    for fault in (
        *(_signalled(name, process) for process in _PROCESSES for name in ("kill", "stop", "term")),
        *(_signalled(name, COMMAND_LINE) for name in ("int", "hup")),
        Fault("disk full", _fill),
        Fault("read-only", _make_read_only),
        Fault("folder gone", _remove),
        Fault("folder swapped", _swap),
        Fault("parent swapped", _swap_parent),
        *(Fault(f"foreign {kind}", _take_over(kind)) for kind in ("file", "link", "hard link")),
        Fault("FIFO", _special(stat.S_IFIFO)),
        Fault("device node", _special(stat.S_IFCHR)),
        Fault("descriptors", _limit_descriptors),
        Fault("memory", _limit_memory),
        Fault("ulimit -v", _limit_address_space),
        Fault("3,000 processes", _crowd("processes")),
        Fault("5,000 threads", _crowd("threads")),
        Fault("clock ahead", _step_clock(_CLOCK_STEP_S)),
        Fault("clock back", _step_clock(-_CLOCK_STEP_S)),
    )
}
_OF_WRITING = {"disk full", "read-only"}
_SPECIAL = {"FIFO", "device node"}
_LIMITS = {"descriptors", "memory", "ulimit -v"}
OF_FILES = {
    *_SPECIAL,
    *_OF_WRITING,
    "folder gone",
    "folder swapped",
    "parent swapped",
    "foreign file",
    "foreign link",
    "foreign hard link",
}


def left_out(command: Command, moment: str, fault: Fault) -> str:
    """Return the rule by which a combination makes no sense; empty if it does."""
    records = COMMAND in command.processes
    is_clock, is_crowd = fault.name.startswith("clock"), fault.name[0].isdigit()
    rules = {
        "the command has no such moment": moment not in command.moments,
        "the command has no such process": bool(fault.process) and fault.process not in command.processes,
        "sampler, helper and the user's command live in the middle": fault.process not in {"", COMMAND_LINE}
        and moment != "middle",
        "a reader times nothing": is_clock and not records,
        "a clock that was set before is no step": is_clock and moment == "before",
        "a clock is stepped by a library that needs a C compiler": is_clock and _COMPILER is None,
        "a crowd is in the middle of a command that can have one": is_crowd
        and (moment != "middle" or not records or command.name in {"sweep", "forecast"}),
        "a viewer writes nothing": fault.name in _OF_WRITING and command.name in {"watch", "replay", "list"},
        "replay looks at no folder": fault.name in OF_FILES - _SPECIAL and command.name == "replay",
        "pytest itself needs files and memory": fault.name in _LIMITS and command.name == "pytest",
        "a reader opens nothing after its outputs": fault.name in OF_FILES and moment == "end" and not command.waits,
        "control groups with limits need version 1 and root": not IS_POSSIBLE
        and (fault.name == "memory" or command.name == "fit"),
    }
    return next((name for name, applies in rules.items() if applies), "")


def expected(command: Command, moment: str, fault: Fault, request: signal.Signals | None) -> int:
    """Return the exit status of the burner alone, as a shell has it."""
    if request is not None and moment in {"end", "saving"}:
        return BURNER_STATUS
    number = fault.signal if fault.process == COMMAND and fault.signal is not signal.SIGSTOP else request
    return command.status if number is None else 128 + number
