"""``--prepare``, ``--cleanup`` and ``--warmup``: what runs around the runs of a series."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from nncftools.cli.options import Request
from nncftools.cli.series import prepare_run
from nncftools.errors import NncfToolsError
from nncftools.sampler.client import Starter
from tests import waiting
from tests.cli.forecast import models
from tests.conftest import Run, command_line
from tests.made_up import rows
from tests.surroundings import HANGING_S

pytestmark = pytest.mark.process

NOTE = "echo {0} >>log; echo {0} on output; echo {0} on error >&2; exit $1\n"
SCRIPTS = {
    "p": NOTE.format("p"),
    "c": NOTE.format("c"),
    "run": "echo running; echo r >>log; sleep 0.2; exit $1\n",
    "hang": "touch here; trap '' TERM INT HUP; while :; do sleep 0.1; done\n",
    "handles": "trap 'exit 0' INT; touch here; while :; do sleep 0.1; done\n",
    "second": "test -s log || { echo r >>log; exec sleep 0.2; }; exec sh handles\n",
    "later": "touch there; trap '' TERM INT HUP; while :; do sleep 0.1; done\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write the scripts, an empty log and a model."""
    models.write(tmp_path / "model", 8)
    for name, script in SCRIPTS.items():
        (tmp_path / name).write_text(script)
    (tmp_path / "log").touch()
    return tmp_path


def order(folder: Path) -> str:
    """Return the lines of the log, as one word."""
    return (folder / "log").read_text().replace("\n", "")


ORDERS = """
monitor -o run.json | prc
monitor --warmup 1 -o run.json | prcprc
monitor --repeat 2 -o run.json --live | prcprc
fit --free-only -o out | prc
long
profile --repeat 2 --warmup 1 | prcprcprc
forecast --no-output -o out | prcprcprc
"""


@pytest.mark.parametrize("line, expected", rows(ORDERS))
def test_order(nncf_tools: Run, folder: Path, line: str, expected: str) -> None:
    """Every run is between the two shell commands, whose output is nowhere as long as they succeed."""
    done = nncf_tools(f"{line} --prepare 'sh p 0' --cleanup 'sh c 0' -- sh run 0 model")
    logs = "".join(log.read_text() for log in (folder / "out").glob("*.log"))

    status = int("forecast" in line)  # a forecast without operations is not known
    assert (done.returncode, order(folder)) == (status, expected), done.stderr
    assert ("Warm-up 1 of 1: RSS peak" in done.stderr) == ("--warmup 1" in line)
    shown = [line for line in (done.stdout + done.stderr + logs).splitlines() if " each run: " not in line]
    assert not any(" on output" in line or " on error" in line for line in shown)
    assert sum(line == "running" for line in shown) == expected.count("r")


def test_plan(nncf_tools: Run) -> None:
    """A search and a forecast name the shell commands before the first run."""
    done = nncf_tools("fit --free-only -o out --prepare 'true 1' --cleanup 'true 2' -- sleep 0.3")

    assert done.stderr.startswith(
        "Before each run: true 1\nAfter each run: true 2\nRun 1: sleep 0.3, without a limit\n"
    )


FAILURES = """
monitor --repeat 2 --prepare 'sh p 3' -- sh run 0 | p | --prepare: 'sh p 3' ended with exit status 3 before run 1 of 2
monitor --repeat 2 --cleanup 'sh c 3' -- sh run 0 | rc | --cleanup: 'sh c 3' ended with exit status 3 after run 1 of 2
fit --free-only -o out --before 'sh p 3' -- sh run 0 | p | --prepare: 'sh p 3' ended with exit status 3 before run 1
fit --free-only -o out --cleanup 'sh c 3' -- sh run 0 | rc | --cleanup: 'sh c 3' ended with exit status 3 after run 1
forecast --no-output -o out --cleanup 'sh c 3' -- sh run 0 model | rc \
| --cleanup: 'sh c 3' ended with exit status 3 after the run with 1 layer
long
monitor --repeat 2 --prepare 'sh p 0; ! test -e run-1.json' -o run.json -- sh run 0 | prp \
| --prepare: 'sh p 0; ! test -e run-1.json' ended with exit status 1 before run 2 of 2
monitor --repeat 2 --warmup 2 --prepare 'sh p 3' -- sh run 0 | p \
| --prepare: 'sh p 3' ended with exit status 3 before warm-up 1 of 2
monitor --repeat 2 --prepare 'sh p 0; kill -9 $$' -- sh run 0 | p \
| --prepare: 'sh p 0; kill -9 $$' ended with exit status 137 before run 1 of 2
monitor -q -o run.json --cleanup 'sh c 3' -- sh run 0 | rc \
| --cleanup: 'sh c 3' ended with exit status 3 after run 1 of 1
monitor --repeat 2 --cleanup 'sh c 3' -- sh run 7 | rc | --cleanup: 'sh c 3' ended with exit status 3 after run 1 of 2
fit --free-only -o out --prepare 'sh p 3' -- sh run 0 | p | --prepare: 'sh p 3' ended with exit status 3 before run 1
forecast --no-output -o out --prepare 'sh p 3' -- sh run 0 model | p \
| --prepare: 'sh p 3' ended with exit status 3 before the run with 1 layer
"""
"""Command line, log and message. A failed run's exit status goes before the status of the cleanup."""


@pytest.mark.parametrize("line, log, said", rows(FAILURES))
def test_failure(nncf_tools: Run, folder: Path, line: str, log: str, said: str) -> None:
    """A failure ends the series: one line has option, status and run, and the output of the shell command follows."""
    done = nncf_tools(line)
    status = 7 if line.endswith("7") else int(said.partition("status ")[2].split()[0])

    assert (done.returncode, order(folder)) == (status, log)
    assert "on output" not in done.stdout
    expected = [f"nncf-tools: error: option {said}:", f"{said[2]} on output", f"{said[2]} on error"]
    assert done.stderr.splitlines()[-3:] == expected


def test_table_of_the_runs_before(nncf_tools: Run, folder: Path) -> None:
    """The runs that ended before a failure keep their lines, their files and their table."""
    done = nncf_tools("monitor --repeat 3 --cleanup 'test ! -e run-2.json' -o run.json -- sh run 0")
    lines = done.stderr.splitlines()
    message = "option --cleanup: 'test ! -e run-2.json' ended with exit status 1 after run 2 of 3"

    assert done.returncode == 1
    assert [line for line in lines if line.startswith("Run ")] == lines[:2]
    assert {"2 RUNS", "Written to run-1.json … run-2.json"} <= set(lines)
    assert lines[-1] == f"nncf-tools: error: {message}"
    assert len(list(folder.glob("*.json"))) == 2


def test_long_output_and_long_command(nncf_tools: Run) -> None:
    """Of much output only the end is shown, and of long lines the ends; nothing reaches the terminal."""
    script = "seq 100; printf 'red \\033[31m\\n%9000d\\n'; exit 4 # " + "x" * 200
    done = nncf_tools("monitor --prepare", script, "--", "true")
    line, *output, longest = done.stderr.splitlines()

    assert done.returncode == 4
    assert len(line) < 160
    assert output == [*map(str, range(83, 101)), "red \\x1b[31m"]
    assert len(longest) == 1000


def test_warm_ups(nncf_tools: Run, folder: Path) -> None:
    """A warm-up has a line, but no file, no place in the table, and no temporary folder is left."""
    (folder / "temporary").mkdir()
    done = nncf_tools(
        "monitor --warmup 2 --repeat 2 -o run.json -- sh run 0", env={"TMPDIR": str(folder / "temporary")}
    )
    lines = [line.partition(":")[0] for line in done.stderr.splitlines()]

    assert (done.returncode, order(folder)) == (0, "rrrr"), done.stderr
    assert lines[:4] == ["Warm-up 1 of 2", "Warm-up 2 of 2", "Run 1 of 2", "Run 2 of 2"]
    assert "2 RUNS" in lines
    left = {path.name for path in folder.iterdir()} - SCRIPTS.keys()
    assert left == {"log", "model", "run-1.json", "run-2.json", "temporary"}
    assert list((folder / "temporary").iterdir()) == []


def test_no_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no temporary file can be made, one line says so before the run."""
    monkeypatch.setattr("tempfile.TemporaryFile", lambda: os.open(tmp_path / "missing/file", os.O_RDWR))
    failed = pytest.raises(NncfToolsError, match="cannot run 'true': No such file or directory")
    with failed, prepare_run(Starter(), Request(prepare="true"), "run 1 of 1"):
        pytest.fail("the run began")


def test_input(nncf_tools: Run, tmp_path: Path) -> None:
    """Each run reads the same file on standard input, which the shell commands do not read."""
    (tmp_path / "text").write_text("text\n")
    line = "monitor --repeat 2 -o run.json -q --warmup 1 --prepare 'cat >>read' -- cat"
    with (tmp_path / "text").open() as file:
        done = nncf_tools(line, stdin=file)

    assert (done.stdout, (tmp_path / "read").read_text()) == ("text\n" * 3, "")


INTERRUPTIONS = """
monitor --repeat 2 {noted} -- sh -c 'touch here; exec sleep 1000' | pc | 130 | run 1 of 2 ended
monitor --repeat 2 {noted} -- sh handles | pc | 130 | stopped: interrupted by SIGINT
monitor --repeat 2 {noted} --prepare 'exec sh hang' -- sh run 0 |  | 130 | interrupted by SIGINT before run 1 of 2
monitor --repeat 2 {noted} --cleanup 'exec sh hang' -- sh run 0 | pr | 130 | interrupted by SIGINT after run 1 of 2
fit --free-only -o out {noted} --cleanup 'exec sh hang' -- sh run 0 | pr | 130 | {resume}
long
monitor --repeat 2 --warmup 1 {noted} -- sh handles | pc | 130 | stopped: interrupted by SIGINT
monitor -q --warmup 2 -- sh run 7 | r | 7 | nncf-tools: stopped: warm-up 1 of 2 ended with exit status 7
monitor --repeat 2 --warmup 2 -- sh run 7 | r | 7 | nncf-tools: stopped: warm-up 1 of 2 ended with exit status 7
monitor --repeat 2 -o run.json -- sh second | r | 0 | Written to run-1.json … run-2.json
monitor -o run.json --cleanup 'exec sh later' -- sh -c 'touch here; exec sleep 1000' |  | 130 \
| interrupted by SIGINT after run 1 of 1
fit --free-only -o out --cleanup 'exec sh later' -- sh -c 'touch here; exec sleep 1000' |  | 130 | {resume}
monitor --repeat 2 --cleanup 'exec sh hang' -- sh run 7 | r | 7 | interrupted by SIGINT after run 1 of 2
fit --free-only -o out {noted} -- sh hang | pc | 130 | {resume}
fit --free-only -o out {noted} --prepare 'exec sh hang' -- sh run 0 |  | 130 | {resume}
forecast --no-output -o out {noted} -- sh hang model | pc | 130 | {resume}
"""
"""Command line, log, exit status, and a part of the last line."""
NOTED = "--prepare 'sh p 0' --cleanup 'sh c 0'"
RESUME = "interrupted; the runs that ended are kept; continue with: --resume --output "


@pytest.mark.parametrize(
    "line, log, status, said", rows(INTERRUPTIONS.replace("{noted}", NOTED).replace("{resume}", RESUME))
)
def test_ctrl_c(folder: Path, line: str, log: str, status: str, said: str) -> None:
    """Ctrl-C ends the series, however a run ends: the run is cleaned up; in a shell command, that is the end.

    A second Ctrl-C ends a cleanup. A warm-up that fails ends the series without Ctrl-C. A run that handles Ctrl-C does
    not count: two runs would have a table, and the last line would be a command.
    """
    command = command_line(line)
    with (
        (folder / "errors").open("w") as errors,
        subprocess.Popen(command, cwd=folder, stderr=errors, start_new_session=True) as process,
    ):
        for name in ("here", "there"):
            waiting.until(lambda name=name: (folder / name).exists() or process.poll() is not None)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
        process.wait(timeout=HANGING_S)

    assert (process.returncode, order(folder)) == (int(status), log)
    assert said in (folder / "errors").read_text().splitlines()[-1]
