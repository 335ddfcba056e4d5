from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import pytest

from nncftools.analysis.build_up import SEEN, BuildUp, Part, of_peak
from nncftools.analysis.code_places import FrameRange
from nncftools.analysis.session import Session
from nncftools.render.summary_json import peak_tree, report
from nncftools.render.view import View
from nncftools.session.model import END_UNKNOWN, MOST_FRAMES, Floor, Frame, Mark, OwnMemory
from nncftools.units import MemoryUnit
from tests.limits import deaths
from tests.made_up import MIB, mib, session
from tests.render import golden
from tests.render.built_up import IMPORT, LOAD, MACHINERY, MAIN, TRACE, built_up, group, mapped

DOCUMENTED = pathlib.Path(__file__).parents[2] / "docs" / "reports.md"


def summary(*args: Any, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 — as ``session`` takes them
    """Return the summary of a session."""
    found: dict[str, Any] = json.loads(report(session(*args, **fields), View(metrics=["rss"])))
    return found


def keys(document: Any, above: str = "") -> Iterator[str]:  # noqa: ANN401 — any JSON
    """Yield all keys with those above them, metrics by one name."""
    for key, value in document.items() if isinstance(document, dict) else ():
        name = "METRIC" if above in {"peaks", "memory"} else key
        yield f"{above}.{name}" if above else name
        yield from keys(value, f"{above}.{name}" if above else name)
    for value in document if isinstance(document, list) else ():
        yield from keys(value, f"{above}[]")


def test_every_key_is_documented() -> None:
    """The documentation names the keys of the summary, and no other."""
    section = DOCUMENTED.read_text(encoding="utf-8").partition("## The summary")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([^`]+)` \| (.*) \|$", section, re.MULTILINE)
    written = {f"{of}.{key}".lstrip(".") for of, meanings in rows for key in re.findall(r"`(\w+)`", meanings)}
    with_stacks = built_up(([MAIN], 10), ([MACHINERY, IMPORT], 9), mappings=[mapped(1.0, group("anonymous", 10))])
    died = deaths.run(deaths.KILLED, oom_kills=[deaths.counted()], memory_limits=[deaths.limit(310)])
    with_floor = session(floor=Floor(size=MIB, at_s=0.5))
    sessions = (golden.run(), with_stacks, died, with_floor)
    found = {key for of in sessions for key in keys(json.loads(report(of, golden.VIEW)))}
    described_elsewhere = ("host.", "sampler.", "start.", "exit.", "totals.", "processes.mattering[].exit.")

    assert {key for key in found if not key.startswith(described_elsewhere)} == written


def tree(of: Session) -> dict[str, Any]:
    """Return the tree of the peak."""
    rise = of_peak(of)
    assert rise is not None
    found: dict[str, Any] = json.loads(peak_tree(of, rise, "Peak"))
    return found


class TestPeakTree:
    def test_every_key_is_documented(self) -> None:
        """The documentation names the keys, and no other."""
        section = DOCUMENTED.read_text(encoding="utf-8").partition("## The tree of the peak")[2].partition("\n## ")[0]
        found = tree(built_up(([MAIN, LOAD], 10)))

        assert [*found] == re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
        assert {*found} == {*found["children"][0], "format", "version", "at_s"}

    def test_places(self) -> None:
        """Lines and their callers, libraries, and what has no stack: the largest first."""
        of = built_up(([MAIN, TRACE], 100), ([MAIN, LOAD], 60), ([], 50))
        found = tree(of)
        main, unseen = found["children"]
        keys = ("label", "function", "line", "lines", "own", "kind")

        assert (found["format"], found["version"], found["at_s"]) == ("nncf-tools-peak", 1, pytest.approx(3, abs=0.1))
        assert (found["bytes"], found["label"]) == (210 * MIB, "Peak")
        assert [main[key] for key in keys] == ["me/export.py:10 main", "main", 10, None, True, "seen"]
        assert main["file"] == "/home/me/export.py"
        assert [unseen[key] for key in keys] == ["not seen", None, None, None, None, "not_seen"]
        assert (unseen["bytes"], unseen["certain"], unseen["children"]) == (50 * MIB, None, [])
        assert [child["label"] for child in main["children"]] == [
            "torch/jit/_trace.py:455 trace",
            "me/export.py:20 load",
        ]
        assert [child["own"] for child in main["children"]] == [False, True]
        assert [child["bytes"] for child in main["children"]] == [100 * MIB, 60 * MIB]

    @pytest.mark.parametrize(
        ("frame", "line", "lines", "label"),
        [
            (Frame("f", "/a/b.py", 7), 7, None, "a/b.py:7 f"),
            (Frame("f", "/a/b.py", 0), None, None, "a/b.py f"),
            (FrameRange("f", "/a/b.py", 5, 8), None, [5, 8], "a/b.py:5-8 f"),
        ],
    )
    def test_lines(self, frame: Frame, line: int | None, lines: list[int] | None, label: str) -> None:
        """A place is a line, a range of lines, or only a function."""
        rise = BuildUp(1.0, 10, [Part(10, SEEN, 0, (frame,))])
        (found,) = json.loads(peak_tree(session(), rise, ""))["children"]

        assert (found["line"], found["lines"], found["label"]) == (line, lines, label)

    @pytest.mark.parametrize(("shared", "expected"), [([], None), ([0, 0, 4 * MIB, 4 * MIB], 4 * MIB)])
    def test_bytes_of_files(self, shared: list[int], expected: int | None) -> None:
        """Bytes of files are not known of earlier recordings."""
        of = built_up(([MAIN], 10))
        assert of.snapshots is not None
        of.snapshots.processes[0].shared = shared

        assert tree(of)["file_bytes"] == tree(of)["children"][0]["file_bytes"] == expected

    def test_deep(self) -> None:
        """The deepest stack that is recorded can be written and read; a deeper one has no inner frames."""
        frames = tuple(Frame(f"f{depth}", "/a.py", 1) for depth in range(MOST_FRAMES))
        rise = BuildUp(1.0, 10, [Part(10, SEEN, 0, frames)])
        found = json.loads(peak_tree(session(), rise, ""))
        for _ in range(401):
            (found,) = found["children"]

        assert (found["function"], found["bytes"], found["children"]) == ("f400", 10, [])


def test_an_unknown_end() -> None:
    """What is not known of an operation whose end is unknown is null."""
    (phase,) = summary(marks=[Mark(name="a", start_s=0, end_s=0.5, error=END_UNKNOWN)])["phases"]

    assert (phase["error"], phase["start_s"], phase["end_s"]) == ("end unknown", 0, 0.5)
    assert phase["rss_start"] is not None
    assert {phase[key] for key in ("duration_s", "rss_end", "rss_delta", "rss_peak", "cpu_s", "read_bytes")} == {None}
    assert phase["has_peak"] is False


def test_estimates_of_operations() -> None:
    """RSS at start and end, and its change, may be estimates."""
    read = OwnMemory(tree=100 * MIB)
    unsure = OwnMemory(tree=100 * MIB, is_estimate=True)
    marks = [
        Mark(name="a", start_s=0, end_s=0.5, own_start=read, own_end=read),
        Mark(name="b", start_s=0.5, end_s=1, own_start=unsure, own_end=read),
    ]
    found = [
        [phase[f"rss_{key}_is_estimate"] for key in ("start", "end", "delta")]
        for phase in summary(marks=marks)["phases"]
    ]

    assert found == [[False, False, False], [True, False, True]]


def test_needs() -> None:
    """What would have been enough memory is in bytes; null when it is unknown."""
    assert summary()["needs"] is None
    assert summary(floor=Floor(size=250 * MIB, at_s=0.5, mapped=50 * MIB))["needs"] == {
        "floor": 251 * MIB,
        "at_s": 0.5,
        "comfortable": 300 * MIB,
        "is_bound": False,
    }


def test_peak_is_a_bracket() -> None:
    """The peak has its bounds, in bytes."""
    assert summary()["peaks"]["rss"] == {
        "sampled": 300 * MIB,
        "at_s": 0.5,
        "low": 300 * MIB,
        "high": None,
        "low_from": "sampled",
        "rose_from_s": 0.5,
        "rose_to_s": 0.5,
        "process": None,
        "likely": None,
    }


def test_base_units() -> None:
    """The summary has bytes, seconds and all metrics, even if the view asks for others."""
    view = View(metrics=["rss"], unit=MemoryUnit.GB, from_zero=True)
    found = json.loads(report(session({"rss": mib(100, 300, 200), "system": mib(1, 2, 3)}), view))

    assert found["memory"]["rss"]["first"] == 100 * MIB
    assert list(found["memory"]) == ["rss", "system"]


def test_unknown_is_null() -> None:
    """What is not known is null, never 0."""
    found = summary({"rss": [None, None]}, totals={}, processes=[], marks=[Mark(name="Export", start_s=0)])

    assert found["memory"]["rss"] == dict.fromkeys(("first", "final", "delta", "average", "lowest"))
    assert found["cpu"] == {"total_s": None, "cores_average": None}
    assert found["processes"]["largest"] is None
    assert found["phases"][0]["rss_peak"] is None
    assert found["phases"][0]["cpu_s"] is None


def test_depth() -> None:
    """Nested operations come with the depth that is asked for."""
    of = session(marks=[Mark(name="a", start_s=0, end_s=1), Mark(name="b", start_s=0.1, end_s=0.2, depth=1)])
    found = [json.loads(report(of, View(metrics=["rss"], depth=depth)))["phases"] for depth in (1, 2)]

    assert [[phase["name"] for phase in phases] for phases in found] == [["a"], ["a", "b"]]


class TestBuildUp:
    def test_parts(self) -> None:
        """The parts of the peak sum to it, and so do the holders, which are the rows of every output."""
        of = built_up(([MAIN, LOAD], 200), ([TRACE], 100), ([MAIN, MACHINERY, IMPORT], 60), ([], 50))
        found = json.loads(report(of, View(metrics=["rss"])))["peak"]["build_up"]

        assert found["size"] == 410 * MIB
        assert sum(found[kind] for kind in ("seen", "program", "not_seen", "shared")) == 410 * MIB
        assert [(holder["label"], holder["kind"], holder["size"] // MIB) for holder in found["holders"]] == [
            ("export.py:20 load", "code", 200),
            ("torch/jit/_trace.py:455 trace", "code", 100),
            ("Python and imports", "imports", 60),
            ("everything else", "rest", 50),
        ]
        assert [holder["text"] for holder in found["holders"]] == [holder["label"] for holder in found["holders"]]
        assert found["holders"][1]["frames"] == [{"function": "trace", "file": TRACE.file, "line": 455}]
        assert found["holders"][2]["parts"] == [{"name": "torch", "size": 60 * MIB}]
        assert (found["memory_at_s"], found["memory"]) == (None, [])

    def test_kinds_of_memory(self) -> None:
        """What the memory was is there in bytes, at the moment nearest to the peak; unknown is null."""
        mappings = [mapped(0.5, group("anonymous", 90)), mapped(0.9, group("file", 60, "/m.bin", copied=10), total=100)]
        of = built_up(([MAIN], 100), mappings=mappings)
        found = json.loads(report(of, View(metrics=["rss"])))["peak"]["build_up"]

        assert (found["memory_at_s"], found["memory_total"]) == (0.9, 100 * MIB)
        assert found["memory"] == [
            {"kind": "file", "file": "/m.bin", "size": 60 * MIB, "clean": 50 * MIB, "anonymous": 10 * MIB},
            {"kind": "not_read", "file": "", "size": 40 * MIB, "clean": None, "anonymous": None},
        ]

    def test_without_stacks(self) -> None:
        """Without stacks it is unknown."""
        assert summary()["peak"]["build_up"] is None
