from __future__ import annotations

import json
import pathlib
import re
from typing import Any

import jsonschema
import pytest

from nncftools.analysis.session import Session
from nncftools.errors import NncfToolsError
from nncftools.render.stacks import collapsed_report, report
from nncftools.render.view import View
from nncftools.session.model import Frame, Mark, Snapshots
from tests.made_up import MIB, session
from tests.render.built_up import IMPORT, LOAD, MACHINERY, MAIN, TRACE, built_up, unsure

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
        """The bytes of all lines are the peak, also of what is only likely and of what was not seen."""
        of = unsure(built_up(([MAIN, LOAD], 200), ([MAIN, TRACE], 100), ([], 50)))

        assert sum(size for _, size in lines(of)) == 350 * MIB

    def test_lines(self) -> None:
        """Two lines of one function are two stacks."""
        other = Frame(MAIN.function, MAIN.file, 11)

        assert [stack for stack, _ in lines(built_up(([MAIN], 200), ([other], 100)))] == [
            "main (me/export.py:10)",
            "main (me/export.py:11)",
        ]

    def test_without_stack(self) -> None:
        """What has no stack is a root frame in brackets."""
        of = dict(lines(built_up(([MAIN], 200), ([], 50), inherited=30)))

        assert of["[shared with the parent]"] == 30 * MIB
        assert of["[not seen]"] == 50 * MIB

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


SCHEMA = pathlib.Path(__file__).parents[1] / "data" / "speedscope_1.25.schema.json"
"""The published schema of the format: https://www.speedscope.app/file-format-schema.json"""


def document(of: Session, **view: Any) -> dict[str, Any]:  # noqa: ANN401 — any field of a view
    """Return the document, which is valid by the published schema."""
    found: dict[str, Any] = json.loads(report(of, View(metrics=["rss"], **view)))
    jsonschema.validate(found, json.loads(SCHEMA.read_text(encoding="utf-8")))
    for profile in found["profiles"]:
        assert len(profile["samples"]) == len(profile["weights"])
        assert all(0 <= frame < len(found["shared"]["frames"]) for stack in profile["samples"] for frame in stack)
    return found


def stacks(of: dict[str, Any], number: int) -> dict[tuple[str, ...], float]:
    """Return the stacks of a profile as names, with their MiB."""
    names = [frame["name"].partition(" (")[0] for frame in of["shared"]["frames"]]
    profile = of["profiles"][number]
    pairs = zip(profile["samples"], profile["weights"], strict=True)
    return {tuple(names[frame] for frame in stack): weight / MIB for stack, weight in pairs}


class TestSpeedscope:
    def test_peak(self) -> None:
        """The first profile is the peak in bytes; frames have file and line."""
        found = document(built_up(([MAIN, LOAD], 200), ([MAIN, TRACE], 100)), title="int4")
        profile = found["profiles"][found["activeProfileIndex"]]

        assert (found["name"], profile["name"], profile["unit"]) == ("int4", "Peak, at 2.00 s", "bytes")
        assert (profile["startValue"], profile["endValue"]) == (0, 300 * MIB)
        assert sum(profile["weights"]) == 300 * MIB
        assert found["shared"]["frames"][0] == {
            "name": "main (me/export.py:10)",
            "file": "/home/me/export.py",
            "line": 10,
        }

    def test_only_what_is_certain(self) -> None:
        """In the second profile, memory counts for the innermost function that it certainly belongs to."""
        found = document(unsure(built_up(([MAIN, LOAD], 200), ([MAIN, TRACE], 100), ([IMPORT], 50))))
        certain = stacks(found, 1)

        assert set(certain) == {("main", "load"), ("main", "trace"), ("main",), ("[not certain]",), ("<module>",)}
        assert sum(certain.values()) == pytest.approx(350)
        assert certain["main", "load"] < stacks(found, 0)["main", "load"]

    def test_operations(self) -> None:
        """Each listed operation has a profile of its own peak, with the number of the table."""
        marks = [Mark(name="Loading", start_s=0, end_s=1), Mark(name="Export", start_s=1, end_s=2)]
        found = document(built_up(([MAIN, LOAD], 200), ([MAIN, TRACE], 100), marks=marks))

        assert [profile["name"] for profile in found["profiles"][2:]] == [
            "1 Loading, at 1.00 s",
            "2 Export, at 2.00 s",
        ]
        assert [profile["endValue"] / MIB for profile in found["profiles"][2:]] == [200, 300]

    def test_hostile_names(self) -> None:
        """Any name is text: without a file and a line, and with control characters."""
        found = document(built_up(([Frame("</script>\x00", "", 0), Frame("", "\ud800", -1)], 100)))

        assert found["shared"]["frames"][0] == {"name": r"</script>\x00"}

    def test_without_stacks(self) -> None:
        """A session without stacks is refused."""
        with pytest.raises(NncfToolsError, match=r"^speedscope needs the stacks of the peak; this session has none$"):
            report(session(), View(metrics=["rss"]))
