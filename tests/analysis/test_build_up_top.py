from __future__ import annotations

import pytest

from nncftools.analysis import build_up
from nncftools.analysis.build_up import CERTAIN
from tests.made_up import MIB
from tests.made_up_stacks import grown, stack

FIRST, SECOND = stack("/a/b.py:9 main", "/a/b.py:1 first"), stack("/a/b.py:9 main", "/a/b.py:2 second")


def test_stack_of_the_last_rise() -> None:
    """The top of a build-up is the stack in which memory last rose, with all bytes of that stack."""
    found = build_up.of_peak(grown((FIRST, 100), (SECOND, 50)))

    assert found is not None
    assert found.top is not None
    assert (found.top.stack, found.top.kind) == (SECOND, CERTAIN)
    assert found.top.size / MIB == pytest.approx(50, abs=1)


def test_not_seen() -> None:
    """If the last rise was not seen, the top is unknown."""
    session = grown((FIRST, 100), (SECOND, 50))
    assert session.snapshots is not None
    (watched,) = session.snapshots.processes
    watched.looks = watched.looks[:1]
    watched.time_s = [at_s if at_s < 0.1 else at_s + 9 for at_s in watched.time_s]
    found = build_up.at(session, watched.time_s[-1])

    assert found is not None
    assert found.top is None
