"""``--prepare``, ``--cleanup`` and ``--warmup``: what runs around the runs of a series."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from nncftools.cli.options import Request
from nncftools.cli.series import prepare_run
from nncftools.errors import NncfToolsError
from nncftools.sampler.client import Starter
from tests import waiting
from tests.cli.forecast import models
from tests.conftest import Run, command_line
from tests.surroundings import HANGING_S

pytestmark = pytest.mark.process

COMMAND = ["sh", "-c", "echo running; echo r >>log; sleep 0.2", "sh"]
REPEAT = ["monitor", "--repeat", "2", "-o", "run.json"]
FIT = ["fit", "--free-only", "-o", "out"]
FORECAST = ["forecast", "--no-output", "-o", "out"]


def note(letter: str, more: str = "true") -> str:
    """Return a shell command that adds a line to the log, prints to both streams, and goes on with ``more``."""
    return f"echo {letter} >>log; echo '{letter} on output'; echo '{letter} on error' >&2; {more}"


def order(folder: pathlib.Path) -> str:
    """Return the lines of the log, as one word."""
    return (folder / "log").read_text().replace("\n", "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["monitor", "-o", "run.json"], "prc"),
        (["monitor", "--warmup", "1", "-o", "run.json"], "prcprc"),
        ([*REPEAT, "--live"], "prcprc"),
        pytest.param(["profile", "--repeat", "2", "--warmup", "1"], "prcprcprc", marks=pytest.mark.long),
        (FIT, "prc"),
        pytest.param(FORECAST, "prcprcprc", marks=pytest.mark.long),
    ],
    ids=["one run", "warm-up", "live view", "profile", "fit", "forecast"],
)
def test_order(nncf_tools: Run, tmp_path: pathlib.Path, words: list[str], expected: str) -> None:
    """Every run is between the two shell commands, whose output is nowhere as long as they succeed."""
    models.write(tmp_path / "model", 8)
    done = nncf_tools(*words, "--prepare", note("p"), "--cleanup", note("c"), "--", *COMMAND, "model")
    logs = "".join(log.read_text() for log in (tmp_path / "out").glob("*.log"))

    assert done.returncode == int(words == FORECAST), done.stderr  # a forecast without operations is not known
    assert order(tmp_path) == expected
    shown = [line for line in (done.stdout + done.stderr + logs).splitlines() if " each run: " not in line]
    assert not any("on output" in line or "on error" in line for line in shown)
    assert sum(line == "running" for line in shown) == expected.count("r")


def test_plan(nncf_tools: Run) -> None:
    """A search and a forecast name the shell commands before the first run."""
    done = nncf_tools(*FIT, "--prepare", "true 1", "--cleanup", "true 2", "--", "sleep", "0.3")

    assert done.stderr.startswith(
        "Before each run: true 1\nAfter each run: true 2\nRun 1: sleep 0.3, without a limit\n"
    )


def test_folder_that_must_not_exist(nncf_tools: Run, tmp_path: pathlib.Path) -> None:
    """An export that refuses an earlier output runs as often as asked."""
    words = ["--repeat", "3", "--prepare", "rm -rf out", "-o", "run.json", "--", "mkdir", "out"]
    done = nncf_tools("monitor", *words)

    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("run-*.json"))) == 3


class Failure(NamedTuple):
    """A shell command that fails, or that is the first to fail."""

    words: list[str]
    said: str
    log: str
    status: int = 3
    command: str = "true"


FAILS_LATER = 'test "$(grep -c p log)" -lt 2 || exit 3'
FAILURES = {
    "prepare": Failure([*REPEAT, "--prepare", note("p", "exit 3")], "--prepare: '{}' {} before run 1 of 2", "p"),
    "prepare, second run": Failure(
        [*REPEAT, "--prepare", note("p", FAILS_LATER)], "--prepare: '{}' {} before run 2 of 2", "prp"
    ),
    "prepare, warm-up": Failure(
        [*REPEAT, "--warmup", "2", "--prepare", note("p", "exit 3")], "--prepare: '{}' {} before warm-up 1 of 2", "p"
    ),
    "prepare, killed": Failure(
        [*REPEAT, "--prepare", note("p", "kill -9 $$")], "--prepare: '{}' {} before run 1 of 2", "p", status=137
    ),
    "cleanup": Failure([*REPEAT, "--cleanup", note("c", "exit 3")], "--cleanup: '{}' {} after run 1 of 2", "rc"),
    "cleanup, one run": Failure(
        ["monitor", "-q", "-o", "run.json", "--cleanup", note("c", "exit 3")],
        "--cleanup: '{}' {} after run 1 of 1",
        "rc",
    ),
    "cleanup, failed run": Failure(
        [*REPEAT, "--cleanup", note("c", "exit 3")], "--cleanup: '{}' {} after run 1 of 2", "rc", 7, "exit 7"
    ),
    "fit, prepare": Failure([*FIT, "--prepare", note("p", "exit 3")], "--prepare: '{}' {} before run 1", "p"),
    "fit, former name": Failure([*FIT, "--before", note("p", "exit 3")], "--prepare: '{}' {} before run 1", "p"),
    "fit, cleanup": Failure([*FIT, "--cleanup", note("c", "exit 3")], "--cleanup: '{}' {} after run 1", "rc"),
    "forecast, prepare": Failure(
        [*FORECAST, "--prepare", note("p", "exit 3")], "--prepare: '{}' {} before the run with 1 layer", "p"
    ),
    "forecast, cleanup": Failure(
        [*FORECAST, "--cleanup", note("c", "exit 3")], "--cleanup: '{}' {} after the run with 1 layer", "rc"
    ),
}


QUICK = {"prepare", "cleanup", "fit, former name", "forecast, cleanup", "run", "fit, cleanup"}
"""The cases of tables that are in the fast suite."""


def cases(table: Mapping[str, object]) -> list[Any]:
    """Return the rows of a table as parameters; those that are not quick are long."""
    return [pytest.param(row, id=name, marks=[] if name in QUICK else pytest.mark.long) for name, row in table.items()]


@pytest.mark.parametrize("failure", cases(FAILURES))
def test_failure(nncf_tools: Run, tmp_path: pathlib.Path, failure: Failure) -> None:
    """A failure ends the series: one line has option, status and run, and the output of the shell command follows."""
    models.write(tmp_path / "model", 8)
    script = f"echo r >>log; sleep 0.2; {failure.command}"
    done = nncf_tools(*failure.words, "--", "sh", "-c", script, "sh", "model")
    option, _, when = failure.said.partition(": '{}' {} ")
    letter = option[2]

    assert done.returncode == failure.status
    assert order(tmp_path) == failure.log
    *_, line, first, second = done.stderr.splitlines()
    status = 3 if failure.command != "true" else failure.status
    assert line.startswith(f"nncf-tools: error: option {option}: ")
    assert line.endswith(f" ended with exit status {status} {when}:")
    assert (first, second) == (f"{letter} on output", f"{letter} on error")
    assert done.stdout == ""


def test_table_of_the_runs_before(nncf_tools: Run, tmp_path: pathlib.Path) -> None:
    """The runs that ended before a failure keep their lines, their files and their table."""
    cleanup = "test ! -e run-2.json"
    done = nncf_tools("monitor", "--repeat", "3", "--cleanup", cleanup, "-o", "run.json", "--", *COMMAND)
    lines = done.stderr.splitlines()

    assert done.returncode == 1
    assert [line for line in lines if line.startswith("Run ")] == [lines[0], lines[1]]
    assert "2 RUNS" in lines
    assert "Written to run-1.json … run-2.json" in lines
    assert lines[-1] == f"nncf-tools: error: option --cleanup: {cleanup!r} ended with exit status 1 after run 2 of 3"
    assert len(list(tmp_path.glob("*.json"))) == 2


def test_long_output_and_long_command(nncf_tools: Run) -> None:
    """Of much output only the end is shown, and of a long shell command the beginning; nothing reaches the terminal."""
    script = "seq 100; printf 'red \\033[31m\\n'; exit 4 # " + "x" * 200
    done = nncf_tools("monitor", "--prepare", script, "--", "true")
    line, *output = done.stderr.splitlines()

    assert done.returncode == 4
    assert len(line) < 160
    assert output == [*map(str, range(82, 101)), "red \\x1b[31m"]


def test_warm_ups(nncf_tools: Run, tmp_path: pathlib.Path) -> None:
    """A warm-up has a line, but no file, no place in the table, and no temporary folder is left."""
    (tmp_path / "temporary").mkdir()
    words = ["--warmup", "2", *REPEAT[1:], "--", *COMMAND]
    done = nncf_tools("monitor", *words, env={"TMPDIR": str(tmp_path / "temporary")})
    lines = [line.partition(":")[0] for line in done.stderr.splitlines()]

    assert done.returncode == 0, done.stderr
    assert lines[:4] == ["Warm-up 1 of 2", "Warm-up 2 of 2", "Run 1 of 2", "Run 2 of 2"]
    assert "2 RUNS" in lines
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "run-1.json", "run-2.json", "temporary"]
    assert list((tmp_path / "temporary").iterdir()) == []
    assert order(tmp_path) == "rrrr"


@pytest.mark.parametrize("repeat", ["1", "2"])
def test_warm_up_that_fails(nncf_tools: Run, tmp_path: pathlib.Path, repeat: str) -> None:
    """A failed warm-up ends the series before any run that counts."""
    done = nncf_tools("monitor", "-q", "--warmup", "2", "--repeat", repeat, "--", "sh", "-c", "exit 7")

    assert done.returncode == 7
    assert done.stderr == "nncf-tools: stopped: warm-up 1 of 2 ended with exit status 7\n"
    assert list(tmp_path.iterdir()) == []


def test_no_temporary_folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no temporary file can be made, one line says so before the run."""
    monkeypatch.setattr("tempfile.TemporaryFile", lambda: os.open(tmp_path / "missing/file", os.O_RDWR))
    failed = pytest.raises(NncfToolsError, match="cannot run 'true': No such file or directory")
    with failed, prepare_run(Starter(), Request(prepare="true"), "run 1 of 1"):
        pytest.fail("the run began")


def test_input(nncf_tools: Run, tmp_path: pathlib.Path) -> None:
    """Each run reads the same file on standard input, which the shell commands do not read."""
    (tmp_path / "text").write_text("text\n")
    words = [*REPEAT, "-q", "--warmup", "1", "--prepare", "cat >>read", "--", "cat"]
    with (tmp_path / "text").open() as file:
        done = nncf_tools(*words, stdin=file)

    assert done.stdout == "text\n" * 3
    assert (tmp_path / "read").read_text() == ""


HANGS = "touch here; trap '' TERM INT HUP; while :; do sleep 0.1; done"
NOTED = ["--prepare", note("p"), "--cleanup", note("c")]


class Interruption(NamedTuple):
    """A series, and the end of the message after Ctrl-C when the file ``here`` exists."""

    words: list[str]
    said: str
    log: str
    status: int = 128 + signal.SIGINT


GO_ON = "interrupted; the runs that ended are kept; continue with: --resume --output "
INTERRUPTIONS = {
    "run that succeeds": Interruption(
        [*REPEAT, *NOTED, "--", "sh", "-c", "test -e here && exit; trap 'exit 0' INT; touch here; sleep 1000"],
        "Written to run-1.json … run-2.json",
        "pcpc",
        0,
    ),
    "run": Interruption([*REPEAT, *NOTED, "--", "sh", "-c", "touch here; exec sleep 1000"], "run 1 of 2 ended", "pc"),
    "prepare": Interruption(
        [*REPEAT, *NOTED, "--prepare", HANGS, "--", *COMMAND], "interrupted by SIGINT before run 1 of 2", ""
    ),
    "cleanup": Interruption(
        [*REPEAT, *NOTED, "--cleanup", HANGS, "--", *COMMAND], "interrupted by SIGINT after run 1 of 2", "pr"
    ),
    "cleanup, failed run": Interruption(
        [*REPEAT, "--cleanup", HANGS, "--", *COMMAND[:2], "exit 7"], "interrupted by SIGINT after run 1 of 2", "", 7
    ),
    "fit, run": Interruption([*FIT, *NOTED, "--", "sh", "-c", HANGS], GO_ON, "pc"),
    "fit, prepare": Interruption([*FIT, *NOTED, "--prepare", HANGS, "--", *COMMAND], GO_ON, ""),
    "fit, cleanup": Interruption([*FIT, *NOTED, "--cleanup", HANGS, "--", *COMMAND], GO_ON, "pr"),
    "forecast, run": Interruption([*FORECAST, *NOTED, "--", "sh", "-c", HANGS, "sh", "model"], GO_ON, "pc"),
}


@pytest.mark.parametrize("case", cases(INTERRUPTIONS))
def test_ctrl_c(tmp_path: pathlib.Path, case: Interruption) -> None:
    """Ctrl-C ends the series: in a run, the run is cleaned up; in a shell command, that is the end."""
    models.write(tmp_path / "model", 8)
    (tmp_path / "log").touch()
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command_line(*case.words), cwd=tmp_path, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as process:
        waiting.until(lambda: (tmp_path / "here").exists() or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=HANGING_S)

    assert process.returncode == case.status
    assert case.said in said.splitlines()[-1]
    assert order(tmp_path) == case.log


@pytest.mark.parametrize("words", [["monitor", "-o", "run.json"], FIT], ids=["monitor", "fit"])
def test_second_ctrl_c(tmp_path: pathlib.Path, words: list[str]) -> None:
    """A cleanup after Ctrl-C ends by another Ctrl-C."""
    cleanup = HANGS.replace("here", "there")
    command = command_line(*words, "--cleanup", cleanup, "--", "sh", "-c", "touch here; exec sleep 1000")
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        for name in ("here", "there"):
            waiting.until(lambda name=name: (tmp_path / name).exists())
            os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=HANGING_S)

    assert process.returncode == 128 + signal.SIGINT
    assert "interrupted by SIGINT after run 1" in said
