from __future__ import annotations

import html
import re
from math import nan
from pathlib import Path

import pytest
from matplotlib import rc_context

from nncftools.render.overlay import Curve, common_metric, curve, draw
from nncftools.units import MemoryUnit
from tests.made_up import mib, session


def one(*rss: float | None) -> Curve:
    """Return the curve of a run with this RSS in MiB."""
    return curve(session({"rss": mib(*rss)}))


def words(groups: list[tuple[str, list[Curve]]], folder: Path) -> list[str]:
    """Return the texts in the picture."""
    with rc_context({"svg.fonttype": "none"}):
        draw(groups, "rss", MemoryUnit.MiB, folder / "o.svg")
    drawn = (folder / "o.svg").read_text(encoding="utf-8")
    return [html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", drawn)]


def test_groups(tmp_path: Path) -> None:
    """A group is named with the median of its peaks, and with how far they differ."""
    runs = [one(100, 300), one(100, 320, 5), one(100, 900, 7)]

    texts = words([("base $x$", runs), ("new", [one(1, 2)]), ("newer", [one(1, 2)])], tmp_path)

    assert "base $x$: median peak 320.0 MiB (300.0 to 900.0, 3 runs)" in texts
    assert "RSS over time of 3 sides" in texts


def test_many_sides(tmp_path: Path) -> None:
    """Fourteen sides, the most that are told apart, fit."""
    assert len(words([(f"side {number}", [one(1, number)]) for number in range(14)], tmp_path)) > 14


@pytest.mark.parametrize("rss", [(100,), (100, None, 50), (0, 0)])
def test_little_data(tmp_path: Path, rss: tuple[float | None, ...]) -> None:
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
