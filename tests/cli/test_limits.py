from __future__ import annotations

import json
import pathlib
import signal
import subprocess
import sys

import psutil
import pytest

from nncftools.cli import planning
from nncftools.cli.options import Request
from nncftools.errors import UsageError
from nncftools.session.session import Session
from tests import waiting
from tests.conftest import HANGING_S, Run, burner, command_line

KILL = ("--max-memory", "50MiB", "--on-limit", "kill")
ENDED = "is above --max-memory 50.0 MiB: the command is ended"


HOLD = " ".join(burner("touch", 100, 2 * HANGING_S))
CHILD = f"until [ -s child ]; do sleep 0.01; done; exec {HOLD}"
"""Holds too much as soon as its PID is known."""


def runs(file: pathlib.Path) -> bool:
    """Return whether the process with the PID in a file is running; a zombie is not."""
    try:
        return psutil.Process(int(file.read_text())).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def until_ended(file: pathlib.Path) -> None:
    """Wait for the end of the process with the PID in a file; it would run twice as long as this waits."""
    waiting.until(lambda: not runs(file), "the end of the child")


@pytest.mark.parametrize("text", ["", "8", "GiB", "-1GiB", "0GiB", "0.1B", "8 PiB", "1e3MiB", "8GiB!"])
def test_no_size(in_process: Run, text: str) -> None:
    """What is no size with a unit is refused; the message says what was expected."""
    result = in_process("monitor", f"--max-memory={text}", "true")

    assert result.returncode == 2
    assert result.stderr.startswith("nncf-tools: error: option --max-memory: a size above 0 with its unit")


@pytest.mark.parametrize(("size", "action"), [(None, "kill"), (8 << 30, "stop")])
def test_no_action(size: int | None, action: str) -> None:
    """An action without a limit, or an unknown one, is refused."""
    with pytest.raises(UsageError, match="option --on-limit"):
        planning.plan(["rss"], Request(max_memory=size, on_limit=action))


@pytest.mark.parametrize(("columns", "expected"), [(["pss"], ["rss", "pss"]), (["pss", "rss"], ["pss", "rss"])])
def test_rss_is_recorded(columns: list[str], expected: list[str]) -> None:
    """A limit makes the recording include RSS."""
    assert planning.plan(columns, Request(max_memory=1)).columns == expected


def test_below(nncf_tools: Run) -> None:
    """A command below its limit ends normally, and nothing is printed."""
    result = nncf_tools("monitor", "-q", "-o", "run.json", *KILL, *burner("touch", 1, 0.1, 3))

    assert (result.returncode, result.stderr) == (3, "")


@pytest.mark.process
def test_warn(tmp_path: pathlib.Path) -> None:
    """A command above its limit continues; the warning is on standard error and in the session."""
    words = command_line("monitor", "-q", "-o", "run.json", "--max-memory", "50MiB", *burner("touch", 100, "go", 3))
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        (tmp_path / "go").touch()
        _, rest = process.communicate(timeout=HANGING_S)
    (warning,) = Session.load(tmp_path / "run.json").warnings[:1]

    assert process.returncode == 3
    assert (said, rest) == (f"nncf-tools: {warning}\n", "")
    assert "is above --max-memory 50.0 MiB" in warning


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="there is no sample at a mark")
def test_operation_at_the_limit(nncf_tools: Run, tmp_path: pathlib.Path) -> None:
    """``profile`` has the limit, too, and its report names the operation in which it was exceeded."""
    (tmp_path / "work.py").write_text(
        "from nncftools import operation\n"
        "with operation('Export'):\n    with operation('Saving'):\n        held = b'x' * (100 << 20)\n"
    )
    words = ("profile", "-o", "run.json", "--no-plot", "--max-memory", "50MiB", sys.executable, "work.py")
    result = nncf_tools(*words)
    reached = Session.load(tmp_path / "run.json").limit_reached

    assert (result.returncode, result.stdout) == (0, "")
    assert reached is not None
    assert reached.rss > reached.limit == 50 << 20
    assert "--max-memory was exceeded during Export › Saving, at" in " ".join(result.stderr.split())


@pytest.mark.parametrize("source", ["proc", "psutil"])
def test_kill(nncf_tools: Run, tmp_path: pathlib.Path, source: str) -> None:
    """The command and all descendants are ended, the status is that of SIGTERM, and the session says why."""
    if source == "proc" and sys.platform != "linux":
        pytest.skip("no /proc")
    script = f"({CHILD}) & echo $! > child; wait"
    words = ("--source", source, "-i", "0.05", "-t", "rss", *KILL, "sh", "-c", script)
    result = nncf_tools("monitor", "-q", "-o", "run.json", *words)
    session = Session.load(tmp_path / "run.json")

    assert result.returncode == 143
    assert session.exit is not None
    assert session.exit.signal == signal.SIGTERM
    assert ENDED in session.warnings[0]
    until_ended(tmp_path / "child")


def test_kill_what_ignores_that(nncf_tools: Run, tmp_path: pathlib.Path) -> None:
    """A process that ignores SIGTERM gets SIGKILL after 5 s, also a child of a command that has ended."""
    script = f"(trap '' TERM; {CHILD}) & echo $! > child; wait"
    result = nncf_tools("monitor", "-q", "-i", "0.05", "-t", "pss", "-o", "run.json", *KILL, "sh", "-c", script)
    session = Session.load(tmp_path / "run.json")

    assert result.returncode == 143
    assert session.warnings[1] == "1 of the processes went on for 5 s after SIGTERM: SIGKILL"
    until_ended(tmp_path / "child")


def test_kill_what_was_attached_to(nncf_tools: Run, tmp_path: pathlib.Path) -> None:
    """An attached process is ended, too."""
    with subprocess.Popen(burner("touch", 100, 2 * HANGING_S)) as process:
        try:
            words = ("-i", "0.05", *KILL, "--pid", process.pid)
            result = nncf_tools("monitor", "-q", "-o", "run.json", *words)
            status = process.wait(HANGING_S)
        finally:
            process.kill()

    assert (result.returncode, status) == (0, -signal.SIGTERM)
    assert ENDED in Session.load(tmp_path / "run.json").warnings[0]


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the sampler ends with the command line")
def test_outlives_the_command_line(tmp_path: pathlib.Path) -> None:
    """The limit holds after the command line is killed: the sampler enforces it."""
    gate = f"echo $$ > child; until [ -e go ]; do sleep 0.01; done; exec {HOLD}"
    child, journal = tmp_path / "child", tmp_path / "run.journal.jsonl"
    words = command_line("monitor", "-q", "-i", "0.05", "-o", "run.json", *KILL, "sh", "-c", gate)
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE) as process:
        waiting.until(lambda: child.exists() and child.read_text(), "the start of the command")
        process.kill()
        process.wait(HANGING_S)
        (tmp_path / "go").touch()
        until_ended(child)
        waiting.until(lambda: '\n{"end":' in journal.read_text(), "the end of the recording")
    lines = [json.loads(line) for line in journal.read_text().splitlines()]

    assert any(isinstance(line, dict) and ENDED in str(line.get("warning")) for line in lines)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--max-memory", "8"), "option --max-memory: a size above 0 with its unit"),
        (("--on-limit", "kill"), "option --on-limit: only with --max-memory"),
        (("--max-memory", "8GiB", "--on-limit", "x"), "option --on-limit: 'x' is not one of warn, kill"),
    ],
)
def test_wrong(in_process: Run, tmp_path: pathlib.Path, words: tuple[str, ...], message: str) -> None:
    """A wrong limit gives one line; nothing runs and no files are left."""
    result = in_process("monitor", *words, "touch", "ran")

    assert result.returncode == 2
    assert message in result.stderr
    assert not list(tmp_path.iterdir())
