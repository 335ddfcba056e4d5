from __future__ import annotations

import importlib
import shlex
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nncftools.analysis.session import Session
from nncftools.journal import reading
from nncftools.journal.writing import Plan
from nncftools.sampler import client
from nncftools.sampler.client import Interrupted, Starter, block_signals
from nncftools.sampler.target import CAUGHT, OF_FAULTS
from nncftools.session.recording import session_from
from tests.conftest import HANGING_S, burner


@pytest.mark.process
def test_recording(tmp_path: Path) -> None:
    """Above the plan's number of samples neighbours are merged; afterwards no signal ends the starter."""
    truth, path, marks = tmp_path / "truth", tmp_path / "run.journal.jsonl", tmp_path / "run.marks.jsonl"
    marks.touch()
    plan = Plan(["rss"], interval_s=0.002, max_samples=5)
    journal = reading.create(path, replace=False)
    command = ["sh", "-c", f"{shlex.join(burner('levels', truth, 1, 20, 3))}; exit 3"]
    environment = {"NNCF_TOOLS_MARKS": str(marks)}
    with Starter() as starter, client.Sampler(starter, plan, command, environment=environment) as sampler:
        sampler.start(client.make_header("", [], None, plan), journal)
        outcome = sampler.wait()
    with path.open("rb") as file:
        session = Session.of(session_from(file, "run"))

    assert {signal.getsignal(number) for number in CAUGHT} == {signal.SIG_IGN}
    assert (outcome.exit_code, outcome.status, outcome.lost) == (3, {"code": 3, "signal": None}, None)
    assert 5 < len(session.samples) < (session.sampler.taken or 0)
    assert (session.peaks["rss"].sampled or 0) >= int(truth.read_text())
    assert any("samples were taken and merged" in warning for warning in session.warnings)


USED = (*CAUGHT, *OF_FAULTS, signal.SIGCHLD)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Restore the signals."""
    before = {number: signal.getsignal(number) for number in USED}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    for number, handler in before.items():
        if handler is not None:
            signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def get(number: int) -> None:
    """Send this thread a signal."""
    signal.raise_signal(number)


def test_ends_what_has_not_begun() -> None:
    """The first signal that asks for the end while no command runs is kept; other signals have no effect."""
    with Starter() as starter:
        for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
            get(number)

    assert starter.asked_to_end == signal.SIGTERM


@pytest.mark.parametrize(
    "by_first, signals, name",
    [
        (True, [signal.SIGUSR1, signal.SIGHUP], "SIGHUP"),
        (False, [signal.SIGINT, signal.SIGTERM], "SIGTERM"),
    ],
)
def test_interrupts_once(*, by_first: bool, signals: list[int], name: str) -> None:
    """Showing results is interrupted by the first signal, saving by the second; what follows is not interrupted."""
    with Starter() as starter:
        with pytest.raises(Interrupted, match=name), starter.interruptible(by_first=by_first):
            list(map(get, signals))
        get(signal.SIGINT)

    assert starter.received is not None  # no further command of a series is started


def test_interrupts_no_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """During an import a signal waits: an exception in it can leave the module locked for ever."""
    text = "import signal, time\nsignal.raise_signal(signal.SIGTERM)\ntime.sleep(0.1)\nended = True\n"
    (tmp_path / "imported_under_signals.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    ended = []

    def imports() -> None:
        ended.append(importlib.import_module("imported_under_signals").ended)
        time.sleep(HANGING_S)

    with Starter() as starter, pytest.raises(Interrupted, match="SIGTERM"), starter.interruptible():
        imports()

    assert ended == [True]


class RaisesInItsEnd:
    """An object whose finalizer a signal interrupts: Python ignores exceptions there."""

    def __del__(self) -> None:
        """Take a signal."""
        get(signal.SIGTERM)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_lost_exception() -> None:
    """Where Python has ignored the exception of a signal, it is raised again a second later."""

    def loses() -> None:
        RaisesInItsEnd()
        time.sleep(HANGING_S)

    with Starter() as starter, pytest.raises(Interrupted, match="SIGTERM"), starter.interruptible():
        loses()

    assert starter.received == signal.SIGTERM


def test_held_back() -> None:
    """Signals wait, and arrive afterwards."""
    passed: list[int] = []
    with Starter() as starter:
        starter.passes_to = passed.append
        with block_signals():
            get(signal.SIGTERM)
            meanwhile = list(passed)

    assert (meanwhile, passed) == ([], [signal.SIGTERM])
