from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from nncftools.analysis.session import Session
from nncftools.session.model import Process
from tests.made_up import MIB, marks, mib, session


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


def test_peaks_that_are_not_known(tmp_path: Path) -> None:
    """A file without peaks, as a journal has none, has those of its samples; peaks in a file stay."""
    path = session({"rss": mib(100, 300), "anon": mib(50, 60)}).save(tmp_path / "run.json")
    document = json.loads(path.read_text(encoding="utf-8"))
    document["peaks"] = {"anon": {"sampled": 7, "at_s": 0.0, "low": 7}}
    path.write_text(json.dumps(document), encoding="utf-8")
    of = Session.load(path)

    assert (of.rss_peak.low, of.peaks["anon"].low) == (300 * MIB, 7)
