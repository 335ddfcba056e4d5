from __future__ import annotations

import pathlib
import signal
import subprocess
from collections.abc import Iterator

import pytest

from nncftools.sampler.target import GRACE_S, LimitGuard
from tests.conftest import HANGING_S
from tests.waiting import until

MIB = 2**20


def sleeper(folder: pathlib.Path, *, stubborn: bool) -> subprocess.Popen[bytes]:
    """Start a shell that SIGTERM ends, or not; return when it is ready."""
    trap = "trap '' TERM;" if stubborn else ""
    ready = folder / "ready"
    process = subprocess.Popen(["sh", "-c", f"{trap} : > {ready}; sleep {HANGING_S}; true"])
    until(ready.exists, "the shell")
    ready.unlink()
    return process


@pytest.fixture
def said() -> list[str]:
    """Collect the warnings."""
    return []


@pytest.fixture
def target(tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process that ignores SIGTERM if the parameter says so."""
    process = sleeper(tmp_path, stubborn=request.param)
    yield process
    process.kill()
    process.wait()


def limit(action: str, said: list[str], *processes: subprocess.Popen[bytes]) -> LimitGuard:
    """Return a limit of 50 MiB for these processes."""

    def alive(_now_s: float) -> list[int]:
        return [process.pid for process in processes if process.poll() is None]

    return LimitGuard({"rss": 50 * MIB, "action": action}, alive, said.append, lambda *_: None)


def test_warns_once(said: list[str]) -> None:
    """Exceeding the limit gives one warning, with figure and time; at the limit and unknown are not above."""
    of = limit("warn", said)
    for at_s, rss in enumerate((None, 50 * MIB, 51 * MIB, 99 * MIB)):
        of.check(rss, at_s)

    assert said == ["RSS of 51.0 MiB at 2.000 s is above --max-memory 50.0 MiB"]
    assert not of.is_ending


@pytest.mark.process
@pytest.mark.parametrize("target", [False], indirect=True)
def test_ends_with_sigterm(said: list[str], target: subprocess.Popen[bytes]) -> None:
    """With ``kill``, SIGTERM ends a process that does not ignore it, without a further warning."""
    of = limit("kill", said, target)
    of.check(51 * MIB, 1.0)

    assert target.wait(HANGING_S) == -signal.SIGTERM
    assert said == ["RSS of 51.0 MiB at 1.000 s is above --max-memory 50.0 MiB: the command is ended"]
    assert of.remaining_s(2.0) == GRACE_S - 1

    of.enforce(1.0 + GRACE_S)
    assert len(said) == 1


@pytest.mark.process
@pytest.mark.parametrize("target", [True], indirect=True)
def test_ends_with_sigkill(said: list[str], target: subprocess.Popen[bytes]) -> None:
    """A process that ignores SIGTERM gets SIGKILL after the grace period, with a warning."""
    of = limit("kill", said, target)
    of.check(51 * MIB, 1.0)
    of.enforce(0.99 + GRACE_S)

    assert target.poll() is None
    assert of.is_ending

    of.enforce(1.0 + GRACE_S)

    assert target.wait(HANGING_S) == -signal.SIGKILL
    assert said[1:] == ["1 of the processes went on for 5 s after SIGTERM: SIGKILL"]
    assert not of.is_ending
    assert of.remaining_s(9.0) is None


def test_line_of_the_journal() -> None:
    """The first sample above the limit is recorded with its time, so that a report can name the operation."""
    written: list[tuple[str, object]] = []
    of = LimitGuard(
        {"rss": 50 * MIB, "action": "warn"}, lambda _: [], lambda _: None, lambda *line: written.append(line)
    )
    for at_s in (1.0, 2.0):
        of.check(51 * MIB, at_s)

    reached = {"at_s": 1.0, "rss": 51 * MIB, "limit": 50 * MIB, "action": "warn"}
    assert written == [("limit_reached", reached)]
