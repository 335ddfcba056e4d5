from __future__ import annotations

import html
import pathlib
import re
from math import nan

import pytest
from matplotlib import rc_context

from nncftools.render.overlay import Curve, common_metric, curve, draw
from nncftools.session.model import Mark
from nncftools.units import MemoryUnit
from tests.made_up import mib, session


def one(*rss: float | None) -> Curve:
    """Return the curve of a run with this RSS in MiB."""
    return curve(session({"rss": mib(*rss)}))


def words(groups: list[tuple[str, list[Curve]]], folder: pathlib.Path) -> list[str]:
    """Return the texts in the picture."""
    with rc_context({"svg.fonttype": "none"}):
        draw(groups, "rss", MemoryUnit.MiB, folder / "o.svg")
    drawn = (folder / "o.svg").read_text(encoding="utf-8")
    return [html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", drawn)]


def test_names_sides_with_their_peaks(tmp_path: pathlib.Path) -> None:
    """Each side is named with its peak, also one whose name looks like a formula."""
    texts = words([("base $x$", [one(100, 300)]), ("new", [one(100, 400)])], tmp_path)

    assert "base $x$: peak 300.0 MiB" in texts
    assert "new: peak 400.0 MiB" in texts
    assert "RSS (MiB)" in texts


def test_groups(tmp_path: pathlib.Path) -> None:
    """A group is named with the median of its peaks, and with how far they differ."""
    runs = [one(100, 300), one(100, 320, 5), one(100, 900, 7)]

    assert "base: median peak 320.0 MiB (300.0 to 900.0, 3 runs)" in words(
        [("base", runs), ("new", [one(1, 2)])], tmp_path
    )


def test_many_sides(tmp_path: pathlib.Path) -> None:
    """Fourteen sides, the most that are told apart, fit."""
    assert len(words([(f"side {number}", [one(1, number)]) for number in range(14)], tmp_path)) > 14


@pytest.mark.parametrize("rss", [(100,), (100, None, 50), (0, 0)])
def test_little_data(tmp_path: pathlib.Path, rss: tuple[float | None, ...]) -> None:
    """One sample, unknown samples and no memory at all can be drawn, alone and in groups."""
    draw([("a", [one(*rss)]), ("b", [one(*rss), one(*rss)])], "rss", MemoryUnit.MiB, tmp_path / "o.png")

    assert (tmp_path / "o.png").read_bytes().startswith(b"\x89PNG")


def test_common_metric() -> None:
    """The metric is the first that all runs hold, RSS before others; one that nobody knows does not count."""
    rss = one(1, 2)
    pss = curve(session({"pss": mib(1, 2)}))
    unknown = curve(session({"rss": (nan, nan), "pss": mib(1, 2)}))

    assert common_metric([[rss], [rss]]) == "rss"
    assert common_metric([[pss], [unknown]]) == "pss"
    assert common_metric([[rss], [pss]]) is None


def test_title_states_the_difference(tmp_path: pathlib.Path) -> None:
    """The title of two sides says by how much peak and duration changed; below, the difference is drawn."""
    texts = words([("base", [one(100, 400, 100)]), ("new", [one(100, 300)])], tmp_path)

    assert "RSS over time: peak −100.0 MiB (−25.0 %), duration −0.500 s (−50.0 %)" in texts
    assert "difference (MiB)" in texts


def test_title_of_several_sides(tmp_path: pathlib.Path) -> None:
    """Of three sides the title says how many there are."""
    assert "RSS over time of 3 sides" in words([(name, [one(100, 300)]) for name in "abc"], tmp_path)


def test_bands_of_operations(tmp_path: pathlib.Path) -> None:
    """Above the lines each side has its operations, whose names lose what they share."""
    marks = [
        Mark(name=f"package.module.function_{name}", start_s=place, end_s=place + 1) for place, name in enumerate("ab")
    ]
    run = curve(session({"rss": mib(*range(100, 105))}, marks=marks))
    texts = words([("base", [run]), ("new", [run])], tmp_path)

    assert texts.count("package.module.function_a") == 2
    assert [operation.figures for operation in run.operations] == [{}, {}]
