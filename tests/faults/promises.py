"""The five promises, checked after a run; and the rules of the kernel that excuse one."""

from __future__ import annotations

import gzip
import json
import re
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.faults.burner import STEPS
from tests.faults.commands import BURNER_STATUS, COMMAND, COMMAND_LINE, DATED, OUT, SAMPLER
from tests.faults.faults import OF_FILES, OTHER, Fault, expected
from tests.faults.run import Run

PROMISES = {
    1: "status and output are as bare",
    2: "nothing of another user's is executed or written",
    3: "what was recorded is kept, or its loss is said",
    4: "everything ends within seconds of a request",
    5: "the terminal is as before",
}
OUTPUT = b"".join(b"line %d\n" % number for number in range(1, STEPS + 1))
_NOT_OURS = {b"", b"theirs", b"mine"}
"""What is in a file that the command has not written: nothing, or what a trap holds."""
_SAYS = re.compile(r"nncf-tools: |^Written to |, failed", re.MULTILINE)
"""How a command of ours says why it did not succeed; a search that finds no limit is an answer, too."""
_NAMED = re.compile(r"; it is (/\S+)")
_OF_LOSS = re.compile(r"lost|missing|missed|could not|cannot|cut|unfinished|killed|not known|gone", re.IGNORECASE)
_TOLD = {
    "fit": r"^Run \d+: .*(?:worked|failed|killed|gave up)",
    "forecast": r"^\d+ layers?: peak",
    "sweep": r"^\[\d+/\d+\] ",
}
"""How a line begins that tells of a run of a series."""
_ERRORS = re.compile(r"^nncf-tools: (error: )?", re.MULTILINE)


class Outcome(NamedTuple):
    """What a run was seen to do."""

    run: Run
    fault: Fault
    status: int | None
    """As a shell has it; None if it did not end."""
    left: list[str]
    """The processes and control groups that outlived it."""
    oom_kills: int
    request: signal.Signals | None
    """The signal that asked the command to end."""
    watched: int | None
    """The status of the recording that ``watch`` follows; None without one."""
    alone: bytes
    """The output of the same command without a fault."""

    @property
    def output(self) -> bytes:
        """What went to standard output, where that is a file."""
        path = self.run.folder / "output"
        return path.read_bytes() if path.exists() else b""


class Kept(NamedTuple):
    """A session or journal that is on disk after the run."""

    path: Path
    is_whole: bool
    samples: int
    marks: int
    warnings: list[str]


class Rule(NamedTuple):
    """What the kernel, or Python itself, does not allow."""

    name: str
    reason: str
    excuses: str
    """How what was seen begins that it excuses: a regular expression."""
    applies: Callable[[Outcome], bool]


RULES = (
    Rule(
        "SIGKILL",
        "a process that is killed runs no more code: its status is 137, its temporary files and control groups stay,"
        " and what it had read and not yet passed on is gone",
        "status 137|left behind|its standard error",
        lambda outcome: outcome.fault.signal is signal.SIGKILL and outcome.fault.process == COMMAND_LINE,
    ),
    Rule(
        "out of memory",
        "beyond the limit of a control group, the kernel kills one of its processes by SIGKILL",
        "",
        lambda outcome: outcome.oom_kills > 0,
    ),
    Rule(
        "read-only",
        "in a folder that may not be changed any more, nothing can be removed: a temporary file stays",
        "left behind",
        lambda outcome: outcome.fault.name == "read-only" and outcome.run.moment == "saving",
    ),
    Rule(
        "descriptors",
        "who may open nothing, or gets no memory, cannot ask the kernel which processes a control group has; the next"
        " `fit` removes it",
        "left behind",
        lambda outcome: outcome.fault.name in {"descriptors", "ulimit -v"} and outcome.run.command.name == "fit",
    ),
    Rule(
        "a program's signals",
        "a program that does not handle SIGTERM or SIGHUP runs no more code: a temporary file stays",
        "left behind",
        lambda outcome: (
            outcome.run.command.name in {"pytest", "python"} and outcome.request in {signal.SIGTERM, signal.SIGHUP}
        ),
    ),
    Rule(
        "a compiled library",
        "plotext's compiled part ends the process by SIGABRT where it gets no memory",
        "status 134|left behind",
        lambda outcome: outcome.fault.name == "ulimit -v" and outcome.status == 128 + signal.SIGABRT,
    ),
    Rule(
        "the end of pytest",
        "pytest prints a traceback if SIGINT arrives while its plugins end",
        "a traceback",
        lambda outcome: outcome.run.command.name == "pytest" and outcome.request is signal.SIGINT,
    ),
    Rule(
        "start and end of Python",
        "before our code begins and after its end, a signal ends Python as usual, SIGINT with a traceback",
        "status|a traceback",
        lambda outcome: (
            outcome.request is not None
            and outcome.fault.process == COMMAND_LINE
            and (
                (outcome.run.moment == "before" and not outcome.run.has("begun"))
                or (outcome.run.moment == "end" and not outcome.run.command.records)
            )
        ),
    ),
)


def broken(outcome: Outcome) -> dict[int, str]:
    """Return the promises that were not kept, with what was seen instead."""
    checks = {1: _as_bare, 2: _nothing_foreign, 3: _kept, 4: _ended, 5: _terminal}
    said = {number: check(outcome) for number, check in checks.items()}
    return {number: text for number, text in said.items() if text}


def rule_for(outcome: Outcome, seen: str) -> str:
    """Return the rule that excuses what was seen; empty if there is none."""
    return next((rule.name for rule in RULES if rule.applies(outcome) and re.match(rule.excuses, seen)), "")


def _as_bare(outcome: Outcome) -> str:
    run, text = outcome.run, outcome.run.terminal.text
    if "Traceback" in text:
        return f"a traceback: {text[text.index('Traceback') :][-300:]!r}"
    if outcome.status is None:
        return ""
    if not run.command.is_bare:
        return _as_alone(outcome)
    if not run.has("begun"):
        is_said = bool(_ERRORS.search(text)) or outcome.status > 128
        return (
            "" if outcome.status and is_said else f"the command did not run, status {outcome.status}: {text[-200:]!r}"
        )
    bare = expected(run.command, run.moment, outcome.fault, outcome.request)
    is_whole = bare == BURNER_STATUS
    if not OUTPUT.startswith(outcome.output) or (is_whole and outcome.output != OUTPUT):
        return f"output {outcome.output!r}"
    if is_whole and "told" not in text:
        return "its standard error did not arrive"
    return "" if outcome.status == bare else f"status {outcome.status}, bare {bare}"


def _as_alone(outcome: Outcome) -> str:
    """Check a command of ours that succeeds as without the fault, or says in one line why not."""
    command, text = outcome.run.command, outcome.run.terminal.text
    if outcome.run.recorder is not None and outcome.watched != (bare := _watched(outcome.fault)):
        return f"the recording that was watched ended with {outcome.watched}, bare {bare}"
    is_said = bool(_SAYS.search(text))
    if command.name == "pytest":
        is_said = "ERROR: option --memory" in text
        if outcome.status == int(pytest.ExitCode.INTERRUPTED) and outcome.request is signal.SIGINT:
            return ""
        if outcome.status == int(pytest.ExitCode.USAGE_ERROR) and is_said:
            return ""
    if outcome.status == command.status:
        is_same = not command.prints or command.records or outcome.output == outcome.alone
        is_other_folder = command.inputs == DATED and outcome.fault.name in OF_FILES
        return "" if is_same or is_said or is_other_folder else f"other output: {outcome.output[-200:]!r}"
    if outcome.status is not None and outcome.status > 128:
        is_asked = outcome.request is not None and outcome.status == 128 + outcome.request
        return "" if is_asked else f"status {outcome.status}"
    return "" if outcome.status in {1, 2, 3} and is_said else f"status {outcome.status}: {text[-300:]!r}"


def _watched(fault: Fault) -> int:
    """Return the status of a recording whose sampler or command gets a signal; what its viewer gets changes nothing."""
    ends = (COMMAND, signal.SIGKILL), (COMMAND, signal.SIGTERM), (SAMPLER, signal.SIGTERM)
    return 128 + (fault.signal or 0) if (fault.process, fault.signal) in ends else BURNER_STATUS


def _nothing_foreign(outcome: Outcome) -> str:
    work = outcome.run.work
    if (content := (work / "victim").read_bytes()) != b"mine":
        return f"another file was written: {content[:100]!r}"
    if made := list((work / "precious").iterdir()):
        return f"another folder was written to: {made[0].name}"
    for path in outcome.run.traps:
        if outcome.run.command.name == "prune" and not path.is_symlink() and not path.exists():
            return f"another user's file was removed: {path.name}"
    for path in _files(outcome.run, "*"):
        if path.stat().st_uid == OTHER and path.read_bytes() != b"theirs":
            return f"another user's file was written: {path.relative_to(work)}"
    if outcome.fault.name in {"folder swapped", "parent swapped"}:
        written = [path for path in (work / OUT).parent.rglob("*") if path.is_file() and not path.is_symlink()]
        if written:
            return f"written into another user's folder: {written[0].relative_to(work)}"
    return ""


def _kept(outcome: Outcome) -> str:
    run = outcome.run
    if outcome.status is None:
        return ""
    if not run.command.records:
        newest = run.work / DATED[-1]
        if run.command.name == "prune" and outcome.fault.name not in OF_FILES and not newest.exists():
            return "the newest recording was removed"
        return _whole_outputs(outcome)
    if run.command.is_bare:
        return _recording_kept(outcome) if run.has("begun") else ""
    return _runs_kept(outcome)


def _recording_kept(outcome: Outcome) -> str:
    run, text = outcome.run, outcome.run.terminal.text
    is_killed = outcome.fault.process == COMMAND_LINE and outcome.fault.signal is signal.SIGKILL
    every = sessions(run)
    known = [one for one in every if is_killed or one.path.is_relative_to(run.work / OUT) or _names(text, one.path)]
    kept = max(known, key=lambda one: (one.is_whole, one.samples), default=None)
    is_said = any(_OF_LOSS.search(line) for line in text.splitlines() if "nncf-tools:" in line)
    if (named := _NAMED.search(text)) and not Path(named[1]).exists():
        return f"there is no {named[1]}"
    if kept is None and every:
        return f"nobody says that it is in {every[0].path}"
    if kept is None:
        return "" if is_said else f"nothing is kept, nothing is said: {text[-300:]!r}"
    is_warned = any(map(_OF_LOSS.search, kept.warnings)) or is_said
    if kept.samples < run.seen and not is_warned:
        return f"{kept.samples} samples of {run.seen} are kept, nothing is said"
    has_ended = outcome.status == BURNER_STATUS and not is_killed
    if run.command.marks and has_ended and kept.is_whole and kept.marks < STEPS and not is_warned:
        return f"{kept.marks} of {STEPS} marks are kept, nothing is said: {kept.warnings}"
    if not kept.is_whole and not (is_warned or is_killed):
        return f"the recording is unfinished, nothing is said: {kept.path.name}"
    return ""


def _names(text: str, path: Path) -> bool:
    return str(path) in text.replace("\n", "")


def _runs_kept(outcome: Outcome) -> str:
    """Check that each run of ``fit`` that it tells about is in its file, and each row of ``sweep``."""
    run, text = outcome.run, outcome.run.terminal.text
    told = len(re.findall(_TOLD[run.command.name], text, re.MULTILINE))
    kept = len(_files(run, "row.json") if run.command.name == "sweep" else sessions(run))
    for path in _files(run, "fit.json"):
        kept = max(kept, _runs_in(_decoded(path)))
    for path in _files(run, "forecast.json"):
        kept = max(kept, len(_decoded(path).get("slices") or ()))
    for path in [*_files(run, "run-*.log"), *_files(run, "slice-*.log")]:
        content = b"".join(line for line in path.read_bytes().splitlines(keepends=True) if b"nncf-tools: " not in line)
        if content not in _NOT_OURS and not (OUTPUT + b"told\n").startswith(content):
            return f"the output in {path.name} is {content!r}"
    said = [line for line in text.splitlines() if "nncf-tools:" in line]
    return "" if kept >= told or said else f"{kept} of {told} runs are kept, nothing is said"


def _runs_in(fit: dict[str, Any]) -> int:
    return (fit.get("free_runs") or 0) + len(fit.get("trials") or ())


def _whole_outputs(outcome: Outcome) -> str:
    """Check that a file of a reader is whole or not there, and that nothing is left beside it."""
    run = outcome.run
    for name in run.command.outputs:
        path = run.work / name
        content = path.read_bytes() if _is_file(path) else b""
        if path.suffix == ".png" and content not in _NOT_OURS and not content.endswith(b"IEND\xaeB`\x82"):
            return f"{name} is not whole: {len(content)} bytes"
    left = [path.name for path in run.work.rglob(".*") if re.fullmatch(r"\.[0-9a-f]{8}\..*", path.name)]
    return f"left behind: {left[0]}" if left else ""


def _ended(outcome: Outcome) -> str:
    if outcome.status is None:
        return "it did not end"
    return f"left behind: {outcome.left}" if outcome.left else ""


def _terminal(outcome: Outcome) -> str:
    return "; ".join(outcome.run.terminal.changes())


def sessions(run: Run) -> list[Kept]:
    """Return all sessions and journals that are there."""
    found = []
    for path in _files(run, "*.json*"):
        if path.name.endswith(".journal.jsonl"):
            text = path.read_text(errors="replace")
            is_whole = '\n{"end"' in text
            found.append(Kept(path, is_whole, text.count("\n["), text.count('"step"') // 2, []))
        elif path.suffix == ".json" and (document := _decoded(path)).get("format") == "nncf-tools-session":
            marks = [mark for mark in document["marks"] if mark["name"] == "step" and mark["end_s"] is not None]
            times = document["samples"]["time_s"]
            found.append(Kept(path, document["finished"], len(times), len(marks), document["warnings"]))
    return found


def _files(run: Run, pattern: str) -> list[Path]:
    paths = [*run.work.rglob(pattern), *run.spare.rglob(pattern)]
    return [path for path in paths if path.parts[len(run.work.parts)] != "in" and _is_file(path)]


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def _decoded(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    try:
        found = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
