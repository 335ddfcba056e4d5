from __future__ import annotations

import pytest

from nncftools.journal.writing import ADDRESS_SPACE, DATA, GROUP, THROTTLE
from nncftools.limits.needs import MACHINE, MAX_MEMORY, Effective, effective_limit, smallest
from nncftools.session.model import Host, LimitReached, MemoryLimit
from tests.made_up import MIB, session

FILE = "/cg/memory.max"


def limit(mib: int, kind: str = GROUP) -> MemoryLimit:
    """Return a limit."""
    return MemoryLimit(kind=kind, size=mib * MIB, set_by=FILE)


def test_none() -> None:
    """Where no limit and no machine is known, there is none."""
    assert effective_limit(session()) is None


def test_smallest_of_all() -> None:
    """The run meets the smallest of the limits of groups, of its own, and of the machine first."""
    reached = LimitReached(at_s=0.5, rss=310 * MIB, limit=350 * MIB, action="warn")
    of = session(memory_limits=[limit(500), limit(400)], limit_reached=reached, host=Host(memory=8 << 30))
    by_group = session(memory_limits=[limit(500), limit(400)], host=Host(memory=8 << 30))

    assert effective_limit(of) == Effective(MAX_MEMORY, 350 * MIB)
    assert effective_limit(by_group) == Effective(GROUP, 400 * MIB, FILE)
    assert effective_limit(session(host=Host(memory=8 << 30))) == Effective(MACHINE, 8 << 30)


@pytest.mark.parametrize(("kind", "counts"), [(GROUP, True), (THROTTLE, True), (ADDRESS_SPACE, False), (DATA, False)])
def test_kinds(kind: str, *, counts: bool) -> None:
    """Limits of address space are not limits of resident memory."""
    assert (effective_limit(session(memory_limits=[limit(400, kind)])) is not None) == counts


@pytest.mark.parametrize(("mib", "counts"), [(290, True), (250, False)])
def test_exceeded(mib: int, *, counts: bool) -> None:
    """A limit that the whole run clearly exceeded holds for a part of it only; RSS may exceed it a little."""
    assert (effective_limit(session(memory_limits=[limit(mib)])) is not None) == counts


def test_of_figures() -> None:
    """The same is known without a session."""
    assert smallest([limit(400)], 0, None, None) == Effective(GROUP, 400 * MIB, FILE)
    assert smallest([], 0, None, 0) is None


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 %"), (7.6, "95 %"), (8, "100 %"), (9, "112 %"), (0.01, "less than 1 %")]
)
def test_share(size: float, text: str) -> None:
    """A share is in whole per cent."""
    assert Effective(GROUP, 8).share_text(size) == text
