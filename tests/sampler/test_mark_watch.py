from __future__ import annotations

import pathlib
import select
import sys

import pytest

from nncftools.sampler import loop
from nncftools.sampler.loop import MarkWatch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")


class Clock:
    """A monotonic clock that moves only when a test moves it."""

    def __init__(self) -> None:
        self.now_ns = 10**9

    def monotonic_ns(self) -> int:
        """Return the time."""
        return self.now_ns


def wakes(watch: MarkWatch) -> bool:
    """Return whether the sampler would wake up now: the kernel notes a write before the write returns."""
    return bool(select.select([watch.descriptor], [], [], 0)[0])


def test_an_appended_line_is_answered_by_a_sample(tmp_path: pathlib.Path) -> None:
    """A write to the log wakes the sampler, which takes one sample and sleeps again."""
    log = tmp_path / "ä log"
    log.touch()
    samples: list[int] = []
    watch = MarkWatch(str(log), lambda: samples.append(1))
    before = wakes(watch)
    with log.open("a") as file:
        file.write("mark\n")
    after = wakes(watch)
    watch.take()

    assert (before, after, wakes(watch)) == (False, True, False)
    assert samples == [1]


def test_many_marks_cost_little(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a sample has just cost time, marks wait for the next one until ten times that time has gone by."""
    log = tmp_path / "log"
    log.touch()
    clock = Clock()
    monkeypatch.setattr(loop, "time", clock)
    samples: list[int] = []

    def slow() -> None:
        clock.now_ns += 1_000
        samples.append(clock.now_ns)

    watch = MarkWatch(str(log), slow)
    due = []
    for pause_ns in (0, 0, 9_999, 1):
        clock.now_ns += pause_ns
        with log.open("a") as file:
            file.write("mark\n")
        watch.take()
        due.append(watch.is_due)

    assert len(samples) == 2
    assert due == [False, True, True, False]


def test_a_log_that_is_not_there(tmp_path: pathlib.Path) -> None:
    """Without the file there is nothing to watch."""
    with pytest.raises(OSError, match="inotify"):
        MarkWatch(str(tmp_path / "none"), lambda: None)
