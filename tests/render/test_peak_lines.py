from __future__ import annotations

from typing import Any

import pytest

from nncftools.analysis.session import Session
from nncftools.journal.writing import GROUP, THROTTLE
from nncftools.render.peak_lines import DrawnLimit, choose_drawn_limit, explain_verdict, write_limit
from nncftools.render.stacks import percents
from nncftools.render.view import View
from nncftools.session.model import Exit, Host, MemoryLimit
from nncftools.units import MemoryUnit
from tests.limits.deaths import KILLED, NO_KILLS, child, counted, run
from tests.made_up import MIB, session

VIEW = View(metrics=["rss"])


@pytest.mark.parametrize(
    "sizes, expected", [((1, 1, 1), [34, 33, 33]), ((995, 5, 0), [100, 0, 0]), ((0, 0), [0, 0]), ((2, 1), [67, 33])]
)
def test_shares_sum_to_100(sizes: tuple[int, ...], expected: list[int]) -> None:
    """Shares of one whole are whole percents that sum to 100."""
    assert percents(sizes) == expected


def test_verdicts() -> None:
    """The name of a program keeps its letters at the start; a death of another reason says that memory was left."""
    of_child = explain_verdict(run(Exit(code=0), child(), oom_kills=[counted()]), MemoryUnit.MiB)
    of_another = dict(explain_verdict(run(KILLED, totals=NO_KILLS), MemoryUnit.MiB))

    assert of_child[0][1].startswith("worker (pid 101) was killed")
    assert of_another["not"] == "by the kernel, which killed no process of the run; because memory ran out"
    assert explain_verdict(run(Exit(code=0)), MemoryUnit.MiB) == []


def limited(size_mib: float, kind: str = GROUP, file: str = "/job/memory.max", **fields: Any) -> Session:  # noqa: ANN401 — any field of a session
    """Return a run with a peak of 300 MiB and a limit."""
    return session(memory_limits=[MemoryLimit(kind=kind, size=int(size_mib * MIB), set_by=file)], **fields)


@pytest.mark.parametrize(
    "of, expected",
    [
        (limited(8192), "4 % of 8 GiB (control group, set by /job/memory.max)"),
        (limited(400, THROTTLE, "x"), "75 % of 400 MiB (control group, memory.high, set by x)"),
        (session(host=Host(memory=400 * MIB)), "75 % of 400 MiB (all of the machine)"),
        (session(host=Host(memory=600 * MIB)), None),
        (session(), None),
        (limited(400, peaks={}), None),
        (limited(400, from_zero=True), None),
    ],
    ids=["far", "throttling", "machine", "machine, far", "none", "no peak", "from zero"],
)
def test_limit(of: Session, expected: str | None) -> None:
    """A share of a limit is told with what sets it; the machine's memory only if more than half of it was held."""
    assert write_limit(of) == expected


def test_limit_of_a_hostile_name() -> None:
    """The name of a group may be long and hostile."""
    text = str(write_limit(limited(400, file="/sys/\x1b[31m" + "x" * 500)))

    assert text.isprintable()
    assert len(text) < 140


@pytest.mark.parametrize(
    "size_mib, view, expected",
    [
        (400, VIEW, DrawnLimit(400, "limit", "400 MiB")),
        (600, VIEW, None),
        (400, View(metrics=["pss"]), None),
        (400, View(metrics=["rss"], from_zero=True), None),
    ],
    ids=["near", "far", "another metric", "from zero"],
)
def test_drawn_limit(size_mib: float, view: View, expected: DrawnLimit | None) -> None:
    """A limit is drawn next to RSS as it is, when the peak is above half of it."""
    assert choose_drawn_limit(limited(size_mib), view) == expected
