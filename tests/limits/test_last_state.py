from __future__ import annotations

import pytest

from nncftools.limits.verdict import last_state
from nncftools.session.model import Mark
from tests import made_up
from tests.limits.deaths import child, run
from tests.made_up import MIB, mib


def test_sample_before() -> None:
    """The sample at the moment itself does not count: what died is gone in it."""
    state = last_state(run(), 1.0)

    assert (state.at_s, state.rss) == (0.5, 200 * MIB)


def test_growth() -> None:
    """The growth is that of the last half second, and of at least three samples."""
    assert last_state(run(), 2.0).growth_per_s == 200 * MIB
    assert last_state(run(), 1.0).growth_per_s is None


def test_unknown_samples() -> None:
    """Samples without a value are passed over."""
    session = made_up.session({"rss": mib(100, 200, None, None)})

    assert last_state(session, 9.0).at_s == pytest.approx(0.5)


def test_no_sample() -> None:
    """Without a sample, nothing is known."""
    state = last_state(run(), 0.0)

    assert (state.at_s, state.rss, state.growth_per_s, state.running) == (None, 0, None, "")


def test_falling_memory() -> None:
    """Memory that fell has no growth."""
    assert last_state(made_up.session({"rss": mib(300, 200, 100)}), 2.0).growth_per_s is None


def test_largest_processes() -> None:
    """Processes that lived then are listed, the largest first, at most three."""
    others = [child(number, peak_rss=number * MIB, end_s=end_s) for number, end_s in ((1, 0.2), (2, 0.9), (3, 1.0))]
    state = last_state(run(made_up.Exit(code=0), *others), 1.0)

    assert [process.id for process in state.largest] == [0, 3, 2]


def test_operations() -> None:
    """The operations that ran are named, the outermost first."""
    marks = [
        Mark(name="Export", start_s=0.1, end_s=1.0),
        Mark(name="Load", start_s=0.2, end_s=0.3, depth=1),
        Mark(name="Compress", start_s=0.6, end_s=1.0, depth=1),
    ]

    assert last_state(run(marks=marks), 0.9).operation == "Export › Compress"


def test_parallel_operations() -> None:
    """Of parallel operations, the latest one is named with what is inside of it, not with what is inside of another."""
    marks = [
        Mark(name="first", start_s=0.1, end_s=2, op=1),
        Mark(name="second", start_s=0.2, end_s=2),
        Mark(name="in first", start_s=0.3, end_s=2, depth=1, inside=1),
    ]

    assert last_state(run(marks=marks), 0.9).operation == "second"
