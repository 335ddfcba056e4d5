from __future__ import annotations

import pytest
from msgspec.structs import replace

from nncftools.live.follower import Replay
from nncftools.session.model import Mark, MemoryLimit, Rise, Series
from tests.made_up import mib, process, session

MIB = 2**20


def test_only_what_happened_up_to_a_moment() -> None:
    """Samples, peak and processes are those of the past."""
    run = session(
        {"rss": mib(100, 300, 200)},
        processes=[process(0), process(1, start_s=0.6, series=Series(time_s=[0.6, 1.0], rss=[5, 7]))],
    )
    replay = Replay(run)
    replay.advance(0.2)
    early = replay.run.latest["rss"], replay.run.peaks["rss"].value, list(replay.run.processes)
    replay.advance(0.7)
    late = replay.run.latest["rss"], replay.run.peaks["rss"].value, replay.run.processes[1].rss

    assert early == (100 * MIB, 100 * MIB, [0])
    assert late == (300 * MIB, 300 * MIB, 5)
    assert not replay.run.ended


def test_end() -> None:
    """At the session's end the run has ended as it did."""
    replay = Replay(session())
    replay.advance(9)

    assert replay.run.ended
    assert replay.run.exit is not None
    assert replay.run.exit.code == 0


def test_session_without_samples() -> None:
    """A recording that was cut off at once can be replayed."""
    replay = Replay(session({"rss": []}))
    replay.advance(0)

    assert replay.run.latest == {}


def test_rise_of_a_high_water_mark() -> None:
    """A mark above the samples raises the peak when its time has come."""
    rise = Rise(from_s=0.6, to_s=0.8, high_water_mark=900 * MIB)
    replay = Replay(session(processes=[process(rises=[rise])]))
    replay.advance(0.7)
    before = replay.run.peaks["rss"].value
    replay.advance(0.9)

    assert (before, replay.run.peaks["rss"].value) == (300 * MIB, 900 * MIB)
    assert replay.run.peaks["rss"].at_s == pytest.approx(0.7)


def test_peak_of_the_session() -> None:
    """From its moment on, each peak is the one that reports name, also where no sample and no rise says so."""
    of = session(
        {"rss": mib(100, 300, 200), "anon": mib(50, 60, 70)}, marks=[Mark(name="Load", start_s=0.0, end_s=0.6)]
    )
    level = 300 * MIB + 100_000
    of.peaks["rss"] = replace(of.peaks["rss"], low=level, rose_from_s=0.4, rose_to_s=0.5)
    replay = Replay(of)
    replay.advance(0.45)
    before = replay.run.peaks["rss"]
    replay.advance(9)
    after = replay.run.peaks

    assert (before.value, before.operation) == (100 * MIB, None)
    assert after["rss"] == (level, 0.45, level, "Load")
    assert (after["anon"].value, after["anon"].at_s) == (70 * MIB, 1.0)


def test_limit() -> None:
    """The limits of a session are those of its replay."""
    limit = MemoryLimit(kind="control group", size=400 * MIB, set_by="/cg/memory.max")

    assert Replay(session(memory_limits=[limit])).run.limit == ("control group", 400 * MIB, "/cg/memory.max")
