from __future__ import annotations

import json
import random
from array import array
from pathlib import Path

import pytest

from nncftools.analysis.session import Session
from nncftools.render import perfetto
from nncftools.render.perfetto import report, slices_by_thread
from nncftools.render.view import View
from nncftools.session.model import Frame, Mark, Snapshots, StackWindow, WatchedProcess
from nncftools.session.samples import Samples
from tests.golden_outputs import FOLDER
from tests.made_up import cases, process, session
from tests.made_up_stacks import window
from tests.render.built_up import LOAD, MACHINERY, MAIN, TRACE, built_up
from tests.render.trace_events import Event, checked

VIEW = View(metrics=["rss"])


def trace(of: Session) -> list[Event]:
    """Return the events, all rules checked."""
    return checked(report(of, VIEW))


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.perfetto.json")), ids=lambda path: path.name)
def test_goldens_keep_the_rules(path: Path) -> None:
    """The traces whose text is kept as it is keep all rules."""
    assert checked(path.read_bytes())


@pytest.mark.long
def test_many_samples() -> None:
    """A counter has at most 20,000 points and keeps the largest and smallest sample; the metadata says so."""
    number = 50_000
    sizes = array("d", (1000 + place % 7 for place in range(number)))
    sizes[43_457], sizes[15_555] = 9999, 1
    time_s = array("d", (place / 2.5 for place in range(number)))
    columns = {"time_s": time_s, "rss": sizes, "cpu": array("d", (place / 5 for place in range(number)))}
    of = session(samples=Samples(columns), duration_s=time_s[-1])
    counters = [event for event in trace(of) if event["ph"] == "C"]
    points = [event["args"]["bytes"] for event in counters if event["name"] == "RSS"]
    facts = json.loads(report(of, VIEW))["otherData"]

    assert len(points) <= 20_000
    assert (min(points), max(points)) == (1, 9999)
    assert sum(event["name"] == "CPU" for event in counters) <= 10_001
    assert "at most 20,000" in facts["points"]
    assert facts["rates"] == "means of at least 2 s"


def test_odd_texts() -> None:
    """A name can contain any character; long names are shortened."""
    odd = '</script>\x00\x1b[31m"\\\n語' * 50
    stacks = ([Frame(odd, "\x00;" * 300, -1), Frame("", "", 0)], 100)
    processes = [process(name=odd, command=[odd])]
    of = built_up(stacks, name=odd, command=[odd], processes=processes, marks=[Mark(name=odd, start_s=0)])

    assert all(len(event["name"]) <= 200 for event in trace(of))


def test_very_many_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of very many slices the longest are written."""
    frames = [Frame(f"f{place}", f"{place}.py", 1) for place in range(60)]
    steps = [[MAIN, *(frames[place % 7 :])] if place % 2 else frames for place in range(100)]
    of = built_up(*((list(stack), 0.1) for stack in steps))
    monkeypatch.setattr(perfetto, "MOST_SLICES", 500)

    assert sum(event.get("cat") == "stack" for event in trace(of)) == 500


@pytest.mark.parametrize("seed", range(3))
def test_any_operations_nest(seed: int) -> None:
    """Operations of one track are always nested, even if operations overlap, touch or have no duration."""
    pick = random.Random(seed)  # noqa: S311 — made-up data
    starts = [pick.randrange(100) / 100 for _ in range(300)]
    marks = [Mark(name="a", start_s=at_s, end_s=at_s + pick.randrange(30) / 100, pid=100) for at_s in starts]

    assert sum(event["ph"] == "X" for event in trace(session(marks=marks))) == 302


FRAMES = [MAIN, LOAD, TRACE, MACHINERY, Frame(MAIN.function, MAIN.file, MAIN.line + 1)]
STACKS: list[list[int]] = [[0], [0, 1], [0, 3, 2], [], [4]]


@pytest.mark.parametrize(
    "windows, expected",
    cases("""
on the stack | 1:1 2:0 to 2.5 | main 1–2.5, load 1–2
another branch | 1:1 1.5:2 to 2 | main 1–2, load 1–1.5, trace 1.5–2
another line | 1:0 1.5:4 to 2 | main 1–1.5, main 1.5–2
a gap | 1:0 to 2, 2:0 to 3, 9:0 to 10 | main 1–3, main 9–10
without stack | 1:0 1.5:- 2:3 2.5:0 to 3 | main 1–1.5, main 2.5–3
never a stack | 1:- to 2 |
"""),
)
def test_slices_of_a_thread(windows: str, expected: str) -> None:
    """A frame lasts from the first stack that has it to the first one without it; the import system is left out."""
    watched = WatchedProcess(pid=1, windows=[read_window(text) for text in windows.split(", ")])
    found = slices_by_thread(watched, Snapshots(frames=FRAMES, stacks=STACKS)).get(7, [])
    in_order = sorted(found, key=lambda of: (of.from_s, -of.to_s))

    assert ", ".join(f"{of.name} {of.from_s:g}–{of.to_s:g}" for of in in_order) == expected


def read_window(text: str) -> StackWindow:
    """Return a window of a thread from the seconds at which its stacks changed, with their numbers, and its end."""
    *changes, _, to_s = text.split()
    pairs = (change.split(":") for change in changes)
    stacks = ((float(at_s), None if number == "-" else int(number)) for at_s, number in pairs)
    return window(7, *stacks, to_s=float(to_s))
