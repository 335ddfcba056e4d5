"""Starting the helper, and what may be read here."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from nncftools.journal.writing import Plan
from nncftools.snapshots import client
from nncftools.snapshots.client import Helper, StackAccess, stack_access
from tests.waiting import until

STATUS = "Name:\tpython\nCapEff:\t{:016x}\nSeccomp:\t0\n"


@pytest.mark.parametrize(
    "scope, capability, with_hook, is_allowed, text",
    [
        (None, 0, False, True, ""),
        ("0\n", 0, False, True, ""),
        ("no number", 0, False, True, ""),
        ("1\n", 0, True, True, "ptrace_scope is 1"),
        ("1\n", 0, False, False, "nncf-tools profile"),
        ("2", 0, True, False, "ptrace_scope is 2"),
        ("3", 0, True, False, "ptrace_scope is 3"),
        ("2", 1 << 19, False, True, ""),
    ],
)
def test_stack_access(  # noqa: PLR0913 — the columns of the table
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    scope: str | None,
    capability: int,
    with_hook: bool,
    is_allowed: bool,
    text: str,
) -> None:
    """All processes, children (with the hook: Pythons that allow it), or only administrators' may be read here."""
    monkeypatch.setattr(client, "_YAMA", tmp_path / "ptrace_scope")
    monkeypatch.setattr(client, "_STATUS", tmp_path / "status")
    client._STATUS.write_text(STATUS.format(capability), encoding="ascii")
    if scope is not None:
        client._YAMA.write_text(scope, encoding="ascii")
    found = stack_access(with_hook=with_hook)

    assert (found.is_allowed, found.needs_ptrace) == (is_allowed, is_allowed and text != "")
    assert text in (found.missing or "")
    assert bool(found.missing) == bool(text)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[int]:
    """Return the descriptor of an empty log."""
    descriptor = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    yield descriptor
    os.close(descriptor)


def lines(tmp_path: Path) -> list[str]:
    """Return the kinds of the lines of the log."""
    return [next(iter(json.loads(text))) for text in (tmp_path / "log").read_text(encoding="utf-8").splitlines()]


@pytest.mark.process
def test_from_start_to_end(log: int, tmp_path: Path) -> None:
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
def test_error_of_ours(log: int, tmp_path: Path) -> None:
    """A helper that fails writes which error it was."""
    helper = Helper(log)
    helper._send(b"{}\n")
    until(lambda: lines(tmp_path) == ["failure"], "the helper to fail")
    helper.close()

    assert json.loads((tmp_path / "log").read_text("utf-8")) == {"failure": "KeyError: 'share'"}


@pytest.mark.process
def test_ends_with_the_sampler(log: int, tmp_path: Path) -> None:
    """When its starter was killed, the helper goes on until the sampler is gone."""
    program = (
        "import os, signal, sys; from nncftools.journal.writing import Plan; from nncftools.snapshots.client import *\n"
        "helper = Helper(int(sys.argv[1])); pid = int(sys.argv[2])\n"
        "helper.follow(pid, Plan(['rss'], pid=pid), StackAccess(None), 0.01); print(flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    with subprocess.Popen(["sleep", "1000"]) as running:
        words = [sys.executable, "-c", program, str(log), str(running.pid)]
        subprocess.run(words, pass_fds=[log], capture_output=True, check=False)
        until(lambda: "process" in lines(tmp_path), "the helper to see the process")
        assert lines(tmp_path)[-1] != "end"
        running.kill()
        running.wait()
        until(lambda: lines(tmp_path)[-1] == "end", "the helper to end")


@pytest.mark.process
def test_sampler_that_nobody_reaps(log: int, tmp_path: Path) -> None:
    """A sampler that is a zombie is gone."""
    with subprocess.Popen(["sleep", "0.05"]) as sampler:
        helper = Helper(log)
        helper.follow(sampler.pid, Plan(["rss"]), StackAccess(None), 0.01)
        until(lambda: "end" in lines(tmp_path), "the helper to end")
    helper.close()


@pytest.mark.process
@pytest.mark.parametrize("error", [None, KeyboardInterrupt, RuntimeError])
def test_helper_that_hangs(log: int, monkeypatch: pytest.MonkeyPatch, error: type[BaseException] | None) -> None:
    """A helper that does not end is killed, also when Ctrl-C or a signal's handler interrupts the wait for it."""
    monkeypatch.setattr(client, "_PATIENCE_S", 0.05)
    helper = Helper(log)
    pid = helper.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    if error is not None:
        monkeypatch.setattr(client, "wait_readable", mock.Mock(side_effect=error))
    with pytest.raises(error) if error else contextlib.nullcontext():
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
