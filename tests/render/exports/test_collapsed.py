from __future__ import annotations

import re

import pytest

from nncftools.analysis.build_up import of_peak
from nncftools.errors import NncfToolsError
from nncftools.render.stacks import collapsed_report
from nncftools.render.view import View
from nncftools.session.model import Frame, Snapshots
from nncftools.session.session import Session
from tests.made_up import MIB, session
from tests.render.built_up import LOAD, MACHINERY, MAIN, TRACE, built_up

VIEW = View(metrics=["rss"])


def lines(of: Session) -> list[tuple[str, int]]:
    """Return stacks and their bytes, read as flamegraph.pl reads them."""
    found = [re.fullmatch(r"(.*)\s+?(\d+(?:\.\d*)?)", line) for line in collapsed_report(of, VIEW).splitlines()]
    return [(match[1], int(match[2])) for match in found if match is not None]


class TestCollapsed:
    def test_stacks(self) -> None:
        """One line per stack, the outermost frame first, without frames of the import system."""
        of = built_up(([MAIN, LOAD], 200), ([MAIN, MACHINERY, TRACE], 100))

        assert [stack for stack, _ in lines(of)] == [
            "main (me/export.py:10);load (me/export.py:20)",
            "main (me/export.py:10);trace (torch/jit/_trace.py:455)",
        ]

    def test_sum(self) -> None:
        """The bytes of all lines are the peak: of two possible stacks, the nearer one has them."""
        of = built_up(([MAIN, LOAD], 200), ([MAIN, TRACE], 100), ([], 50))
        build_up = of_peak(of)

        assert sum(size for _, size in lines(of)) == 350 * MIB
        assert build_up is not None
        assert build_up.sum_of("either") > 0

    def test_without_stack(self) -> None:
        """What has no stack is a root frame in brackets."""
        of = dict(lines(built_up(([MAIN], 200), ([], 50), inherited=30)))

        assert of["[shared with the parent process, at most]"] == 30 * MIB
        assert 40 * MIB < of["[not seen]"] <= 50 * MIB

    def test_hostile_names(self) -> None:
        """A name with a semicolon or a new line is one frame on one line."""
        hostile = Frame("a;b\nc 5", "/home/x;y/z\n.py", 1)
        of = lines(built_up(([MAIN, hostile], 100)))

        assert [stack for stack, _ in of] == [r"main (me/export.py:10);a:b\nc 5 (x:y/z\n.py:1)"]

    @pytest.mark.parametrize(
        ("of", "why"),
        [
            (session(), "this session has none"),
            (session(snapshots=Snapshots(missing="py-spy is not\ninstalled")), r"none were taken: py-spy is not\\n"),
            (built_up(([MAIN], 10), peaks={}), "the moment of the peak is unknown"),
        ],
        ids=["no snapshots", "missing", "no peak"],
    )
    def test_without_stacks(self, of: Session, why: str) -> None:
        """A session without stacks is refused in one line that says why."""
        with pytest.raises(NncfToolsError, match=f"^collapsed needs the stacks of the peak; {why}") as error:
            collapsed_report(of, VIEW)

        assert "\n" not in str(error.value)
        assert error.value.remedy == "stacks"
