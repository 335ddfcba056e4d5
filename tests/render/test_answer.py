from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from nncftools.analysis.session import Session
from nncftools.render.peak_lines import (
    list_holders,
    name_largest_holder,
    write_headline,
    write_need,
)
from nncftools.render.sentences import write_held_at_end
from nncftools.render.view import View
from nncftools.session.model import Exit, Floor, Mark, Peak, WatchedProcess
from nncftools.units import MemoryUnit
from tests.analysis.made_snapshots import Made
from tests.made_up import MIB, mib, process, session
from tests.made_up_stacks import grown, stack

HOSTILE = "\x1b[31m" + "long_" * 40
VIEW = View(["rss"])
LOAD, RUN = stack("/a/b.py:1 load"), stack("/a/b.py:2 run")


def of_two(**fields: Any) -> Session:  # noqa: ANN401 — any field of a session
    """Return a run of a process and its forked copy."""
    return session(processes=[process(), process(1, parent=0, forked_copy=True)], **fields)


def nested(*names: str) -> list[Mark]:
    """Return operations inside each other that last as long as the run."""
    return [Mark(name=name, start_s=0.0, end_s=1.0, depth=depth) for depth, name in enumerate(names)]


def rows(of: Session, unit: MemoryUnit = MemoryUnit.MiB, most: int = 4) -> list[tuple[str, str, str]]:
    """Return size, label and text of each row."""
    return [(row.size, row.label, row.text) for row in list_holders(of, View(["rss"], unit=unit), most)]


@pytest.mark.parametrize(
    "of, expected",
    [
        (session(name="", peaks={}), "Peak memory unknown"),
        (session(name="", marks=nested("Loop", "Run", "Run")), ", during Loop › Run"),
        (of_two(name=""), "Peak memory 300 MiB (RSS of 2 processes; pages that they share are counted in each)"),
    ],
    ids=["unknown", "equal names", "forked"],
)
def test_headline(of: Session, expected: str) -> None:
    """The first line has the peak, its time and its operation; where processes share pages, it says so."""
    assert expected in write_headline(of, VIEW)


@pytest.mark.parametrize(
    "view, expected",
    [
        (View(["system"]), "run: Peak System 900 MiB, 1.0 s after the start"),
        (View(["system", "rss"]), "run: Peak memory 300 MiB, 0.5 s after the start"),
    ],
    ids=["another metric", "RSS among metrics"],
)
def test_headline_of_a_view(view: View, expected: str) -> None:
    """A title replaces the name of the run; the figure is RSS unless the view does not show it."""
    of = session({"rss": mib(100, 300, 200), "system": mib(700, 800, 900)})

    assert write_headline(of, view) == expected


def test_hostile_names() -> None:
    """Control characters are escaped, and long names are shortened."""
    of = grown((stack(f"/a/{HOSTILE}.py:1 {HOSTILE}"), 300), name=HOSTILE, marks=nested(HOSTILE))
    texts = [
        write_headline(of, VIEW),
        name_largest_holder(of, MemoryUnit.MiB),
        *(text for row in rows(of) for text in row),
    ]

    assert all(text.isprintable() for text in texts)
    assert max(map(len, texts)) < 160


def test_other_programs() -> None:
    """A program without Python has a row, with the line of the user's code that started it."""
    of = grown((LOAD, 300))
    assert of.snapshots is not None
    native = WatchedProcess(process=1, pid=101, is_native=True, time_s=[0.1, 0.2, 0.48], rss=[0, 10 * MIB, 900 * MIB])
    native.apart_s = [0.001] * 3
    of.snapshots.processes.append(native)
    of.processes.append(process(1, name="cc1plus", parent=0))
    of.peaks["rss"] = replace(of.peaks["rss"], low=1200 * MIB)

    assert [label for _, label, _ in rows(of)] == ["cc1plus, started by a/b.py:1 load", "b.py:1 load"]


@pytest.mark.parametrize("view", [View(["rss"], from_zero=True), View(["system"])], ids=["from zero", "another metric"])
def test_no_rows(view: View) -> None:
    """A view that does not show the whole RSS has no rows about it."""
    assert list_holders(grown((LOAD, 300)), view) == []


def test_largest_holder() -> None:
    """The largest code is named; nothing without stacks."""
    assert name_largest_holder(grown((LOAD, 100), (RUN, 300)), MemoryUnit.MiB) == "300 MiB in b.py:2 run"
    assert name_largest_holder(session(), MemoryUnit.MiB) == ""


@pytest.mark.parametrize(
    "fields, expected",
    [
        ({"floor": Floor(size=200 * MIB, at_s=0.5)}, "Would work with 200 MiB · took 1.0 s"),
        ({"floor": Floor(size=200 * MIB, at_s=0.5), "exit": Exit(signal=9)}, "Needs more than 200 MiB · took 1.0 s"),
        ({"duration_s": 0.0123}, "took 0.012 s"),
        ({"duration_s": 9.98}, "took 10 s"),
        ({"duration_s": 74.2}, "took 1 min 14 s"),
        ({"processes": [process(end_s=None)]}, "recorded 1.0 s, and the command continued"),
        (
            {"processes": [process(end_s=None)], "floor": Floor(size=100 * MIB, at_s=0.5)},
            "Needs more than 100 MiB · recorded 1.0 s, and the command continued",
        ),
    ],
)
def test_sufficient(fields: dict[str, Any], expected: str) -> None:
    """One line says how little memory is enough, if it is known, and how long the run took."""
    assert write_need(session(**fields), MemoryUnit.MiB) == expected


@pytest.mark.parametrize(
    "held, peak, expected",
    [
        ("63M", 300, ""),
        ("64M", 321, ""),
        ("64M", 320, "64 MiB without imports, 20 % of peak"),
        ("300M", 300, "300 MiB without imports, 100 % of peak"),
        ("300M", None, ""),
    ],
)
def test_held_at_end(held: str, peak: int | None, expected: str) -> None:
    """Memory at the end has a line from 64 MiB and from a fifth of the peak."""
    made = Made()
    watched = made.process(f"0@0 {held}@0.5 {held}@1 0@1", "load@0")
    watched.take_end_of_code(0.9, watched.rss[1])
    of = made.session()
    of.exit = Exit(code=0)
    low = None if peak is None else peak * MIB
    of.peaks = {"rss": Peak(sampled=low, at_s=0.5, low=low)}

    text = f"Still held at the end: {expected}; report --peak --at end shows the code" if expected else ""
    assert write_held_at_end(of, MemoryUnit.MiB) == text
