from __future__ import annotations

from typing import Any

import pytest

from nncftools.journal.writing import GROUP, THROTTLE
from nncftools.render.memory_line import DrawnLimit, drawn_limit, limit_text
from nncftools.render.peak_lines import peak_lines
from nncftools.render.view import View
from nncftools.session.model import Host, LimitReached, MemoryLimit
from nncftools.session.session import Session
from nncftools.units import MemoryUnit
from tests.made_up import MIB, session

VIEW = View(metrics=["rss"])
FILE = "/sys/fs/cgroup/job/memory.max"


def limited(size_mib: float, kind: str = GROUP, **fields: Any) -> Session:  # noqa: ANN401 — any field of a session
    """Return a run with a peak of 300 MiB and a limit."""
    return session(memory_limits=[MemoryLimit(kind=kind, size=int(size_mib * MIB), set_by=FILE)], **fields)


class TestText:
    def test_group(self) -> None:
        """A share of the limit is told with its kind and the file that sets it."""
        assert limit_text(limited(400)) == f"75 % of 400 MiB (control group, set by {FILE})"

    def test_far_from_a_group(self) -> None:
        """The limit of a control group is told, however little of it was held."""
        assert limit_text(limited(8192)) == f"4 % of 8 GiB (control group, set by {FILE})"

    @pytest.mark.parametrize(("size_mib", "expected"), [(400, "75 % of 400 MiB (all of the machine)"), (600, None)])
    def test_machine(self, size_mib: int, expected: str | None) -> None:
        """The machine's memory is a limit only for a run that held more than half of it."""
        assert limit_text(session(host=Host(memory=size_mib * MIB))) == expected

    def test_own_limit(self) -> None:
        """The limit of the recording itself is told as what it is."""
        reached = LimitReached(at_s=0.5, rss=300 * MIB, limit=200 * MIB, action="warn")

        assert limit_text(session(limit_reached=reached)) == "150 % of 200 MiB (--max-memory)"

    def test_throttling(self) -> None:
        """A limit above which processes are only slowed down is named."""
        assert str(limit_text(limited(400, THROTTLE))).startswith("75 % of 400 MiB (control group, memory.high, set by")

    def test_unknown(self) -> None:
        """Without a limit, without a peak, and with memory from an unknown zero there is no share."""
        assert limit_text(session()) is None
        assert limit_text(limited(400, peaks={})) is None
        assert limit_text(limited(400, from_zero=True)) is None

    def test_harmless(self) -> None:
        """The name of a group may be long and hostile."""
        hostile = MemoryLimit(kind=GROUP, size=400 * MIB, set_by="/sys/\x1b[31m" + "x" * 500)
        text = str(limit_text(session(memory_limits=[hostile])))

        assert text.isprintable()
        assert len(text) < 140

    def test_under_the_headline(self) -> None:
        """The limit is the first line under the peak, without stacks, too."""
        assert peak_lines(limited(400), MemoryUnit.MiB) == [("limit", limit_text(limited(400)))]


class TestDrawn:
    def test_near(self) -> None:
        """A limit is drawn when the peak is above half of it; sizes are in the view's unit."""
        assert drawn_limit(limited(400), VIEW) == DrawnLimit(400, "limit", "400 MiB")
        assert drawn_limit(limited(600), VIEW) is None

    def test_machine(self) -> None:
        """The memory of the machine is named as such."""
        found = drawn_limit(session(host=Host(memory=400 * MIB)), View(metrics=["rss"], unit=MemoryUnit.GiB))

        assert found is not None
        assert (found.size, found.label) == (pytest.approx(0.390625), "machine\n400 MiB")

    @pytest.mark.parametrize("view", [View(metrics=["pss"]), View(metrics=["rss"], from_zero=True)])
    def test_other_axis(self, view: View) -> None:
        """It is drawn only next to RSS as it is."""
        assert drawn_limit(limited(400), view) is None
