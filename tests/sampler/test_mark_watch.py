from __future__ import annotations

import pathlib
import select
import sys

import pytest

from nncftools.sampler.mark_watch import MarkWatch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")


def wakes(watch: MarkWatch) -> bool:
    """Return whether the sampler would wake up."""
    return bool(select.select([watch.descriptor], [], [], 0.2)[0])


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
    watch.heed()

    assert (before, after, wakes(watch)) == (False, True, False)
    assert samples == [1]


def test_many_marks_cost_little(tmp_path: pathlib.Path) -> None:
    """When a sample has just cost time, marks that follow at once get none."""
    log = tmp_path / "log"
    log.touch()
    samples: list[int] = []

    def slow() -> None:
        samples.append(sum(range(200_000)))

    watch = MarkWatch(str(log), slow)
    for _ in range(3):
        with log.open("a") as file:
            file.write("mark\n")
        watch.heed()

    assert len(samples) == 1


def test_a_log_that_is_not_there(tmp_path: pathlib.Path) -> None:
    """Without the file there is nothing to watch."""
    with pytest.raises(OSError, match="inotify"):
        MarkWatch(str(tmp_path / "none"), lambda: None)
