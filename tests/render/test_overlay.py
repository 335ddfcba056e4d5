from __future__ import annotations

from math import nan
from pathlib import Path

import pytest
from matplotlib import rc_context

from nncftools.render.overlay import Curve, common_metric, curve, draw
from nncftools.units import MemoryUnit
from tests.made_up import marks, mib, session


def one(*rss: float | None) -> Curve:
    """Return the curve of a run with this RSS in MiB."""
    return curve(session({"rss": mib(*rss)}))


def svg(groups: list[tuple[str, list[Curve]]], folder: Path) -> str:
    """Return the picture as SVG."""
    with rc_context({"svg.fonttype": "none"}):
        draw(groups, "rss", MemoryUnit.MiB, folder / "o.svg")
    return (folder / "o.svg").read_text(encoding="utf-8")


def test_groups(tmp_path: Path) -> None:
    """A group is named with the median and the range of its peaks; only a group with operations has a coloured band."""
    runs = [one(100, 300), one(100, 320, 5), one(100, 900, 7)]

    drawn = svg([("base $x$", runs), ("new", [one(1, 2)]), ("newer", [one(1, 2)])], tmp_path)

    assert "base $x$: median peak 320.0 MiB (300.0 to 900.0, 3 runs)" in drawn
    assert "RSS over time of 3 sides" in drawn
    assert svg([("base", runs), ("new", [curve(session(marks=marks("Export 0-1")))])], tmp_path).count("■") == 1


def test_many_sides(tmp_path: Path) -> None:
    """Fourteen sides, the most that are told apart, fit."""
    assert svg([(f"side {number}", [one(1, number)]) for number in range(14)], tmp_path).count(">side ") == 14


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

    groups = ([[rss], [rss]], [[pss], [unknown]], [[rss], [pss]])
    assert [*map(common_metric, groups)] == ["rss", "pss", None]
