from __future__ import annotations

import json
import pathlib
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from nncftools.analysis import build_up, frames
from nncftools.analysis.session import Session
from nncftools.render import summary_json, text
from nncftools.render.view import View
from nncftools.session.model import Process
from tests.made_up import MIB, marks, mib, session
from tests.made_up_stacks import grown, stack


def rename(of: Session) -> None:
    """Give a session another operation."""
    of.marks = marks("b 0")


def raise_peak(of: Session) -> None:
    """Give a session another peak."""
    of.peaks["rss"] = replace(of.rss_peak, low=900 * MIB)


def lose_processes(of: Session) -> None:
    """Give a session other processes."""
    of.processes = list[Process]()


@pytest.mark.parametrize("change", [rename, raise_peak, lose_processes])
def test_figures_are_made_once(change: Callable[[Session], None]) -> None:
    """A figure is made again only when a part of the session that it depends on was replaced."""
    of = session({"rss": mib(100, 300, 200)}, marks=marks("a 0"))
    (before,), (again,) = of.operations, of.operations
    change(of)

    assert again is before
    assert of.operations[0] is not before


def test_peaks_that_are_not_known(tmp_path: pathlib.Path) -> None:
    """A file without peaks, as a journal has none, has those of its samples; peaks in a file stay."""
    path = session({"rss": mib(100, 300), "anon": mib(50, 60)}).save(tmp_path / "run.json")
    document = json.loads(path.read_text(encoding="utf-8"))
    document["peaks"] = {"anon": {"sampled": 7, "at_s": 0.0, "low": 7}}
    path.write_text(json.dumps(document), encoding="utf-8")
    of = Session.load(path)

    assert (of.rss_peak.low, of.peaks["anon"].low) == (300 * MIB, 7)


def test_nothing_hides() -> None:
    """What a session holds is in its fields."""
    assert not hasattr(session(), "__dict__")


def test_build_up_of_the_peak_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code that took the peak, and who held it, are found once for all outputs of a session."""
    calls: list[str] = []
    for module, name in ((build_up, "_build_up_peak"), (frames, "_rows_of_peak")):
        original = getattr(module, name)

        def counted(of: Session, original: Callable[[Session], object] = original) -> object:
            calls.append(original.__module__)
            return original(of)

        monkeypatch.setattr(module, name, counted)
    of = grown((stack("/a/b.py:9 main"), 300))
    view = View(metrics=["rss"])
    for report in (text.report, summary_json.report):
        report(of, view)

    assert sorted(calls) == ["nncftools.analysis.build_up", "nncftools.analysis.frames"]
