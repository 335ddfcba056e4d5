"""Starting the helper, and what may be read here."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from nncftools.journal.writing import Plan
from nncftools.snapshots import client
from nncftools.snapshots.client import Helper, StackAccess, stack_access
from tests.waiting import until

STATUS = "Name:\tpython\nCapEff:\t{:016x}\nSeccomp:\t0\n"


@pytest.fixture
def yama(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Return the file of a made-up kernel that says who may read other processes; we have no capability."""
    scope, status = tmp_path / "ptrace_scope", tmp_path / "status"
    status.write_text(STATUS.format(0), encoding="ascii")
    monkeypatch.setattr(client, "_YAMA", scope)
    monkeypatch.setattr(client, "_STATUS", status)
    return scope


def allow_all(tmp_path: pathlib.Path) -> None:
    """Give us CAP_SYS_PTRACE."""
    (tmp_path / "status").write_text(STATUS.format(1 << 19), encoding="ascii")


@pytest.mark.parametrize("scope", [None, "0\n", "no number"])
def test_allowed(yama: pathlib.Path, scope: str | None) -> None:
    """Without yama, or where it allows all, stacks are read."""
    if scope is not None:
        yama.write_text(scope, encoding="ascii")

    assert stack_access(with_hook=False) == StackAccess(is_allowed=True)


def test_only_parents(yama: pathlib.Path) -> None:
    """Where only parents may look, Pythons with the hook open the door, and nobody else does."""
    yama.write_text("1\n", encoding="ascii")

    with_hook, without = stack_access(with_hook=True), stack_access(with_hook=False)

    assert with_hook.is_allowed
    assert with_hook.needs_ptrace
    assert "ptrace_scope is 1" in (with_hook.missing or "")
    assert not without.is_allowed
    assert "nncf-tools profile" in (without.missing or "")


@pytest.mark.parametrize("scope", ["2", "3"])
def test_only_administrators(yama: pathlib.Path, scope: str) -> None:
    """Where only administrators may look, no door helps."""
    yama.write_text(scope, encoding="ascii")

    found = stack_access(with_hook=True)

    assert not found.is_allowed
    assert f"ptrace_scope is {scope}" in (found.missing or "")


def test_capability(yama: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """With CAP_SYS_PTRACE, all is allowed."""
    yama.write_text("2", encoding="ascii")
    allow_all(tmp_path)

    assert stack_access(with_hook=False) == StackAccess(is_allowed=True)


@pytest.fixture
def log(tmp_path: pathlib.Path) -> Iterator[int]:
    """Return the descriptor of an empty log."""
    descriptor = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    yield descriptor
    os.close(descriptor)


def lines(tmp_path: pathlib.Path) -> list[str]:
    """Return the kinds of the lines of the log."""
    return [next(iter(json.loads(text))) for text in (tmp_path / "log").read_text(encoding="utf-8").splitlines()]


@pytest.mark.process
def test_from_start_to_end(log: int, tmp_path: pathlib.Path) -> None:
    """The helper watches until it is closed, and writes its last line."""
    with subprocess.Popen(["sleep", "1000"]) as running:
        helper = Helper(log)
        helper.follow(running.pid, Plan(["rss"], pid=running.pid), StackAccess(is_allowed=False, missing="none"), 0.01)
        until(lambda: "process" in lines(tmp_path), "the helper to see the process")
        helper.close()
        helper.close()
        running.kill()

    assert lines(tmp_path)[0] == "helper"
    assert lines(tmp_path)[-1] == "end"
    assert helper.pid is None


@pytest.mark.process
def test_error_of_ours(log: int, tmp_path: pathlib.Path) -> None:
    """A helper that fails writes which error it was."""
    helper = Helper(log)
    helper._send(b"{}\n")
    until(lambda: lines(tmp_path) == ["failure"], "the helper to fail")
    helper.close()

    assert json.loads((tmp_path / "log").read_text("utf-8")) == {"failure": "KeyError: 'share'"}


@pytest.mark.process
def test_ends_with_the_sampler(log: int, tmp_path: pathlib.Path) -> None:
    """When its starter was killed, the helper goes on until the sampler is gone."""
    program = (
        "import os, signal, sys; from nncftools.journal.writing import Plan; from nncftools.snapshots.client import *\n"
        "helper = Helper(int(sys.argv[1])); pid = int(sys.argv[2])\n"
        "helper.follow(pid, Plan(['rss'], pid=pid), StackAccess(None), 0.01); print(helper.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    with subprocess.Popen(["sleep", "1000"]) as running:
        words = [sys.executable, "-c", program, str(log), str(running.pid)]
        starter = subprocess.run(words, pass_fds=[log], capture_output=True, text=True, check=False)
        pid = int(starter.stdout)
        until(lambda: "process" in lines(tmp_path), "the helper to see the process")
        assert lines(tmp_path)[-1] != "end"
        running.kill()
        running.wait()
        until(lambda: lines(tmp_path)[-1] == "end", "the helper to end")

    until(lambda: not pathlib.Path(f"/proc/{pid}/statm").exists() or not read_statm(pid), "its process to be gone")


def read_statm(pid: int) -> bool:
    """Return whether a process still has memory."""
    try:
        return not pathlib.Path(f"/proc/{pid}/statm").read_text("ascii").startswith("0 ")
    except OSError:
        return False


@pytest.mark.process
def test_sampler_that_nobody_reaps(log: int, tmp_path: pathlib.Path) -> None:
    """A sampler that is a zombie is gone."""
    with subprocess.Popen(["sleep", "0.05"]) as sampler:
        helper = Helper(log)
        helper.follow(sampler.pid, Plan(["rss"]), StackAccess(None), 0.01)
        until(lambda: "end" in lines(tmp_path), "the helper to end")
    helper.close()


@pytest.mark.process
def test_helper_that_hangs(log: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A helper that does not end is killed."""
    monkeypatch.setattr(client, "_PATIENCE_S", 0.05)
    helper = Helper(log)
    pid = helper.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)

    helper.close()

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.process
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_interrupted_close(log: int, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]) -> None:
    """Ctrl-C while a helper ends, or an error of a signal's handler, kills it; closing again is no error."""

    def interrupt(*_: object) -> None:
        raise error

    helper = Helper(log)
    pid = helper.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    monkeypatch.setattr(client, "readable", interrupt)
    with pytest.raises(error):
        helper.close()
    helper.close()

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.process
def test_helper_that_died(log: int) -> None:
    """A helper that has died makes no trouble."""
    helper = Helper(log)
    assert helper.pid is not None
    os.kill(helper.pid, signal.SIGKILL)

    helper.follow(1, Plan(["rss"]), StackAccess(None), 0.01)
    helper.close()


def test_no_log() -> None:
    """Without a log, nothing is started."""
    helper = Helper(None)

    helper.follow(1, Plan(["rss"]), StackAccess(None), 0.01)
    helper.close()

    assert helper.pid is None
