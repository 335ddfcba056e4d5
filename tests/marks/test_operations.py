from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import threading
from typing import Any

import pytest

import nncftools
from nncftools.marks import own_log
from nncftools.marks.line import VARIABLE
from nncftools.marks.operations import mark_from_outside


@pytest.fixture
def log(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Send marks to an empty log, as in a recorded run."""
    path = tmp_path / "marks.jsonl"
    path.touch()
    monkeypatch.setenv(VARIABLE, str(path))
    return path


def lines(log: pathlib.Path) -> list[dict[str, Any]]:
    """Return the lines of the log."""
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_mark_operation(log: pathlib.Path) -> None:
    """A mark is one line with its moment, process and thread."""
    nncftools.mark_operation('Export "ü"')
    (line,) = lines(log)

    assert (line["name"], line["pid"], line["tid"]) == ('Export "ü"', os.getpid(), threading.get_native_id())
    assert line["source"] == "api"
    assert "event" not in line


def test_operation(log: pathlib.Path) -> None:
    """A block is a begin and an end with one number; a repeated name has two."""
    for _ in range(2):
        with nncftools.operation("Export"):
            pass
    noted = lines(log)

    assert [line["event"] for line in noted] == ["begin", "end"] * 2
    assert noted[0]["op"] == noted[1]["op"] != noted[2]["op"] == noted[3]["op"]
    assert noted[0]["t_ns"] <= noted[1]["t_ns"]


def test_exceptions_pass_and_are_named(log: pathlib.Path) -> None:
    """An exception ends the operation, is named in its end line, and propagates."""
    with pytest.raises(KeyError, match="mine"), nncftools.operation("Export"):
        raise KeyError("mine")

    assert lines(log)[1]["error"] == "KeyError"


def test_decorates(log: pathlib.Path) -> None:
    """Each call of a decorated function is an operation."""

    @nncftools.operation("Export")
    def work(number: int) -> int:
        """Return a number."""
        return number

    assert [work(1), work(2)] == [1, 2]
    assert len(lines(log)) == 4


@pytest.mark.parametrize("path", [None, "", "/no/such/log"])
def test_without_a_recording(path: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """When nothing is recording, or the log was removed, marks do nothing and create no file."""
    if path is None:
        monkeypatch.delenv(VARIABLE, raising=False)
    else:
        monkeypatch.setenv(VARIABLE, path)
    nncftools.mark_operation("a")
    with nncftools.operation("b"):
        done = True

    assert done
    assert not pathlib.Path("/no").exists()


def test_from_outside(log: pathlib.Path) -> None:
    """A mark from outside names no process."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    mark_from_outside(descriptor, "Export", "shell")
    os.close(descriptor)
    (line,) = lines(log)

    assert (line["name"], line["source"], "pid" in line) == ("Export", "shell", False)


def test_own_log_is_shared_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """All recorders of a program share one log; the last one removes it."""
    monkeypatch.delenv(VARIABLE, raising=False)
    first, second = own_log.acquire(), own_log.acquire()
    known = os.environ[VARIABLE]
    own_log.release()
    there = first.exists()
    own_log.release()

    assert first == second == pathlib.Path(known)
    assert there
    assert not first.exists()
    assert VARIABLE not in os.environ


def test_log_of_the_recording_around(log: pathlib.Path) -> None:
    """Inside a recorded run, marks go to the run's log, which is kept."""
    assert own_log.acquire() == log
    own_log.release()

    assert log.exists()
    assert os.environ[VARIABLE] == str(log)


@pytest.mark.process
def test_log_without_a_temporary_folder() -> None:
    """When no file can be written, the log is in memory."""
    script = (
        "import os, tempfile; from nncftools.marks import own_log; import nncftools\n"
        "def mkstemp(**_): raise OSError\n"
        "tempfile.mkstemp = mkstemp\n"
        "path = own_log.acquire(); nncftools.mark_operation('a'); print(path.read_text()); own_log.release()\n"
        "print('NNCF_TOOLS_MARKS' in os.environ)"
    )
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    result = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)

    assert '"name":"a"' in result.stdout
    assert result.stdout.splitlines()[-1] == "False"
