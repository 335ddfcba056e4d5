"""One combination of command, moment and fault: ``python -m tests.faults.case NAME SEED ROOT``.

It has namespaces of its own: its mounts, processes and memory group end with it, whatever the command does.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.faults import promises
from tests.faults.commands import COMMANDS, MOMENTS, ROOT, Command
from tests.faults.faults import FAULTS, Fault, left_out, prepare
from tests.faults.promises import Outcome
from tests.faults.run import GROUP, NotReachedError, Run, environment, lay_out, own_group, processes
from tests.memory_group import IS_POSSIBLE, V1

GREEN, RED = "green", "red"
PATIENCE_S, REQUEST_S = 60.0, 20.0
"""How long a command may take to end by itself, and after a request: seconds, on a machine that is busy."""
_HANGING_S = 900.0
ALONE = "alone"
"""The file with the output of the command without a fault."""


class Result(NamedTuple):
    """What became of a combination."""

    name: str
    colour: str
    """``green``, ``red``, or the rule of the kernel that excuses what was not kept."""
    reasons: dict[str, str]
    """What was not kept, by the number of the promise."""
    shown: str = ""
    """What the terminal showed."""
    seconds: float = 0.0


def named(command: Command, moment: str, fault: Fault) -> str:
    """Return the name of a combination."""
    return f"{command.name}/{moment}/{fault.name}"


def combinations() -> tuple[list[str], dict[str, str]]:
    """Return the names of all combinations that make sense, and the rule by which each other one is left out."""
    every = {
        named(command, moment, fault): left_out(command, moment, fault)
        for command in COMMANDS.values()
        for moment in MOMENTS
        for fault in FAULTS.values()
    }
    return [name for name, rule in every.items() if not rule], {name: rule for name, rule in every.items() if rule}


def result_of(name: str, seed: int) -> Result:
    """Run a combination in namespaces of its own."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="faults-") as root, _group() as enter:
        Path(root).chmod(0o755)
        Path(root, ALONE).write_bytes(_alone(name.partition("/")[0]))
        inside = [sys.executable, "-m", "tests.faults.case", name, str(seed), root]
        words = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", *inside]
        try:
            done = subprocess.run(
                ["sh", "-c", f'{enter}exec "$@"', "sh", *words],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_HANGING_S,
                check=False,
            )
            text, errors = done.stdout, done.stderr
        except subprocess.TimeoutExpired:
            text, errors = "", f"no result within {_HANGING_S:g} s"
    seconds = time.monotonic() - began
    try:
        return Result(**json.loads(text.splitlines()[-1]))._replace(seconds=seconds)
    except (IndexError, ValueError):
        return Result(name, RED, {"0": f"the table itself failed: {errors[-600:]}"}, seconds=seconds)


@contextlib.contextmanager
def _group() -> Iterator[str]:
    """Make a memory group; yield the words of a shell that enter it."""
    if not IS_POSSIBLE:
        yield ""
        return
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    own = V1 / next(line.split(":", 2)[2] for line in lines if ":memory:" in line).lstrip("/")
    folder = Path(tempfile.mkdtemp(prefix=f"{GROUP}-", dir=own))
    try:
        yield f"echo $$ > {folder}/cgroup.procs; "
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    for inner in [path for path in folder.iterdir() if path.is_dir()]:
        _remove(inner)
    deadline = time.monotonic() + REQUEST_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            folder.rmdir()
            return
        time.sleep(0.02)


def _inside(name: str, seed: str, root: Path) -> Result:
    command_name, moment, fault_name = name.split("/")
    command, fault = COMMANDS[command_name], FAULTS[fault_name]
    run = Run(command, moment, root, f"{name} {seed}")
    prepare(run, fault)
    try:
        outcome = _outcome(run, fault)
    except NotReachedError as error:
        return Result(name, RED, {"0": str(error)}, run.terminal.text)
    finally:
        subprocess.run(["chattr", "-R", "-i", run.work], capture_output=True, check=False)
    broken = promises.broken(outcome)
    rules = [promises.rule_for(outcome, seen) for seen in broken.values()]
    reasons = {str(number): text for number, text in broken.items()}
    colour = GREEN if not broken else rules[0] if all(rules) else RED
    return Result(name, colour, reasons, f"{run.terminal.text}\n(status {outcome.status})")


def _outcome(run: Run, fault: Fault) -> Outcome:
    run.start()
    if run.moment == "before" and not fault.process:
        fault.act(run)
    run.launch()
    assert run.process is not None
    if run.moment != "before":
        run.reach()
    if run.moment != "before" or fault.process:
        fault.act(run)
    run.go_on()
    request = fault.request(run)
    if request is None:
        run.go()
    elif fault.signal is None:
        run.process.send_signal(request)
    patience_s = PATIENCE_S * (3 if fault.name[0].isdigit() else 1)  # the kernel needs long for a crowd, too
    status = run.wait(run.process, REQUEST_S if request else patience_s)
    if status is None and request is None:
        run.process.terminate()
        status = run.wait(run.process, REQUEST_S)
        if fault.name not in {"FIFO", "device node"}:
            status = None
    run.go()
    watched = None if run.recorder is None else run.wait(run.recorder, PATIENCE_S)
    left = _left(run)
    group = own_group()
    kills = 0
    for limit in group.rglob("memory.oom_control") if group is not None else ():
        words = limit.read_text().split()
        kills += int(words[words.index("oom_kill") + 1])
    return Outcome(run, fault, status, left, kills, request, watched, (run.root / ALONE).read_bytes())


def _left(run: Run) -> list[str]:
    """Return what outlives the run by seconds."""
    deadline = time.monotonic() + REQUEST_S
    while (found := list(processes().values())) and time.monotonic() < deadline:
        run.terminal.read()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)
    run.terminal.read()
    group = own_group()
    return found + [path.name for path in (group.iterdir() if group else ()) if path.name.startswith("nncf-tools-fit")]


@functools.cache
def _alone(name: str) -> bytes:
    """Return the output of a reader without a fault."""
    command = COMMANDS[name]
    if command.records or not command.prints:
        return b""
    with tempfile.TemporaryDirectory(prefix="faults-") as root:
        folder = Path(root)
        lay_out(folder, command)
        words = [sys.executable, "-m", "nncftools", *command.line.split()]
        return subprocess.run(words, cwd=folder, env=environment(folder), capture_output=True, check=True).stdout


def main() -> None:
    """Print the result of one combination as JSON."""
    name, seed, root = sys.argv[1:]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    result = _inside(name, seed, Path(root))
    print(json.dumps(result._asdict()), flush=True)
    os._exit(0)  # with it ends all that is left


if __name__ == "__main__":
    main()
