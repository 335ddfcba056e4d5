from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox

from nncftools.compression.picture import MAX_NAMED, Drawing, draw, render
from nncftools.compression.reading import LATENCY, PEAK
from nncftools.compression.results import Comparison, Group, find_far, parse_bounds
from tests.compression.made_up import (
    HEADER,
    MADE_UP,
    changed,
    compared,
    four,
    many,
    row,
    without_int8,
    written,
)


def boxes(drawing: Drawing, place: int = 0) -> tuple[list[Bbox], list[tuple[float, float]], Bbox]:
    """Return the positions of the names, the points and the axes of a panel, all in pixels."""
    renderer = FigureCanvasAgg(drawing.figure).get_renderer()  # type: ignore[no-untyped-call]
    axes = drawing.figure.axes[place]
    drawing.figure.draw(renderer)
    texts = [text for text in axes.texts if isinstance(text, Annotation)]
    names = [Bbox(Text.get_window_extent(text, renderer)) for text in texts]
    points = [tuple(axes.transData.transform(line.get_xydata()[0])) for line in axes.lines if line.get_gid()]
    return names, points, Bbox(axes.get_window_extent(renderer))


def check(names: Sequence[Bbox], points: Sequence[tuple[float, float]], frame: Bbox) -> None:
    """Fail when names overlap, cover a point or leave the axes."""
    marker = 4 * 120 / 72
    assert not [pair for pair in itertools.combinations(names, 2) if pair[0].fully_overlaps(pair[1])]
    for name in names:
        assert all(frame.contains(*corner) for corner in name.corners())
        assert not [point for point in points if math.dist(np.clip(point, name.min, name.max), point) < marker]


def names_on_lines(drawing: Drawing) -> list[str]:
    """Return the names whose box a front or a line of mixed precision crosses."""
    (axes,) = drawing.figure.axes
    names, _, _ = boxes(drawing)
    paths = [line.get_path().transformed(line.get_transform()) for line in axes.lines if len(line.get_xydata()) > 1]
    texts = [text.get_text() for text in axes.texts if isinstance(text, Annotation)]
    return [
        text
        for text, name in zip(texts, names, strict=True)
        if any(path.intersects_bbox(name, filled=False) for path in paths)
    ]


def texts(comparisons: Sequence[Comparison], **options: object) -> list[str]:
    """Return all text of a picture."""
    figure = draw(comparisons, **options).figure  # type: ignore[arg-type]
    return [found.get_text() for found in figure.findobj(Text) if isinstance(found, Text) and found.get_text()]


class TestNames:
    @pytest.mark.parametrize("count", [1, 3, 11, pytest.param(40, marks=pytest.mark.long)])
    def test_none_overlaps(self, tmp_path: Path, count: int) -> None:
        """Every point has its name; none overlaps another, leaves the axes or covers a point."""
        drawing = draw(compared(written(tmp_path / "a.csv", many(count))))
        names, points, frame = boxes(drawing)

        assert (len(names), drawing.unnamed) == (count, 0)
        check(names, points, frame)

    @pytest.mark.long
    def test_too_many_are_counted(self, tmp_path: Path) -> None:
        """Of too many points, the best are named without overlaps, and the others are counted."""
        drawing = draw(compared(written(tmp_path / "a.csv", many(120))))
        names, points, frame = boxes(drawing)

        assert len(names) <= MAX_NAMED
        assert len(names) + drawing.unnamed == 120
        check(names, points, frame)

    @pytest.mark.long
    def test_no_room(self, tmp_path: Path) -> None:
        """Names that fit nowhere are counted."""
        rows = [*four(), *(row("int4", **{"plot name": f"{number} {'x' * 38}"}) for number in range(80))]

        assert draw(compared(written(tmp_path / "a.csv", rows))).unnamed > 0

    def test_hostile_names(self, tmp_path: Path) -> None:
        """Names are literal, also of results that are not drawn: no formulas, no control characters, short lines."""
        rows = changed(changed(four(), 3, "plot name", "$\\frac{1}{"), 4, "plot name", "\x1b[31m\n" + "x" * 500)
        comparisons = compared(written(tmp_path / "a.csv", changed(rows, 5, "plot name", "量化")))
        for far in ((), {*map(id, comparisons[0].results)}):
            text = "\n".join(texts(comparisons, far=far))

            assert "$\\frac{1}{" in text
            assert max(map(len, text.splitlines())) <= 95
            assert "\x1b" not in text
            assert "量化" in text


class TestPicture:
    def test_names_keep_off_lines(self, tmp_path: Path) -> None:
        """No name is on the front, nor on the line of mixed precision."""
        drawing = draw(compared(written(tmp_path / "a.csv", without_int8())))

        assert names_on_lines(drawing) == []

    @pytest.mark.parametrize("words", [1, 30])
    def test_legend_is_below(self, tmp_path: Path, words: int) -> None:
        """The legend is below the panel and inside the picture, however long the names of algorithms are."""
        rows = [{**one, "mode": " + ".join([one["mode"], *["scale estimation"] * words])} for one in without_int8()]
        drawing = draw(compared(written(tmp_path / "a.csv", rows)))
        _, _, frame = boxes(drawing)
        legend = drawing.figure.legends[0].get_window_extent()

        assert legend.y1 < frame.y0
        assert drawing.figure.bbox.contains(legend.x0, legend.y0)
        assert drawing.figure.bbox.contains(legend.x1, legend.y1)

    @pytest.mark.parametrize(
        "errors, bound, far",
        [
            ("0.01 0.05 0.1 0.2", "error<=5%", 0),
            ("0.01 0.05 0.1 192.6", "error<=5%", 1),
            ("0.01 0.05 0.1 192.6", "error<=20000%", 0),
            ("0.001 0.21", "error<=5%", 0),
            ("100 200 300 400", "error<=5%", 0),
            ("3 3 3|0.01 0.01", "error<=5%", 0),
        ],
    )
    def test_far_errors(self, errors: str, bound: str, far: int) -> None:
        """Only errors far beyond most others are not drawn. Baselines do not count; a recommended result is drawn."""
        comparisons: list[Any] = []
        for texts in errors.split("|"):
            results = [SimpleNamespace(error=0, group=Group.BASELINE, row=SimpleNamespace(size=9))]
            for size, text in enumerate(reversed(texts.split())):
                results.append(SimpleNamespace(error=float(text), group=Group.OTHER, row=SimpleNamespace(size=size)))
            comparisons.append(SimpleNamespace(results=results))

        assert len(find_far(comparisons, parse_bounds(bound))) == far

    def test_far_rates(self, tmp_path: Path) -> None:
        """A rate far beyond the others is drawn on a logarithmic scale. The legend names only the models drawn."""
        rows = changed(four(), 5, "model size, Gb", "0.01")
        comparisons = compared(written(tmp_path / "a.csv", rows), written(tmp_path / "b.csv", four()))
        drawing = draw(comparisons, far={*map(id, comparisons[1].results)})
        legend = [text.get_text() for text in drawing.figure.legends[0].get_texts()]

        assert drawing.figure.axes[0].get_yscale() == "log"
        assert len(drawing.points) == 3
        assert [comparison.name in legend for comparison in comparisons] == [True, False]

    @pytest.mark.long
    @pytest.mark.parametrize("kind, magic", [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
    def test_formats(self, kind: str, magic: bytes) -> None:
        """Every format is written, and the same picture gives the same bytes."""
        first, again = (render(draw(compared(MADE_UP)), kind) for _ in range(2))

        assert first.startswith(magic)
        assert first == again


class TestPanels:
    def test_front_of_each_panel(self, tmp_path: Path) -> None:
        """Each panel has a front of its own, where less is better; what is dominated there is lighter."""
        peaks = {"fp32": "", "int8": "30", "int4": "10", "int4 + gptq": "20"}
        errors = {"fp32": "1", "int8": "0.98", "int4": "0.96", "int4 + gptq": "0.94"}
        rows = [{**one, PEAK.column: peaks[one["mode"]], "WWB, similarity": errors[one["mode"]]} for one in four()]
        main, peak = draw(compared(written(tmp_path / "a.csv", rows, [*HEADER, PEAK.column])), also=(PEAK,)).figure.axes
        best = [
            {str(line.get_gid())[-5:] for line in axes.lines if line.get_gid() and line.get_alpha() == 1}
            for axes in (main, peak)
        ]
        fronts = [
            [list(line.get_ydata()) for line in axes.lines if line.get_drawstyle() == "steps-post"]
            for axes in (main, peak)
        ]

        assert best == [{"row-1", "row-2"}, {"row-1", "row-2"}]
        assert fronts == [[[4, 8]], [[30, 10]]]

    def test_unknown_is_counted(self, tmp_path: Path) -> None:
        """Rows without the figure are not in the panel, which says how many; without any, it says so."""
        panels = []
        for cells in (("", "10", "", "30"), [""] * 4):
            rows = [{**one, PEAK.column: cell} for one, cell in zip(four(), cells, strict=True)]
            path = written(tmp_path / "a.csv", rows, [*HEADER, PEAK.column])
            panels.append(draw(compared(path), also=(PEAK,)).figure.axes[1])
        some, none = panels

        assert some.get_title(loc="left") == "unknown, not shown: 1"
        assert [text.get_text() for text in none.texts] == ["no row has this value"]

    @pytest.mark.parametrize("count", [4, *(pytest.param(of, marks=pytest.mark.long) for of in (16, 40))])
    def test_names(self, tmp_path: Path, count: int) -> None:
        """No name overlaps another one or a point in any panel, and the legend is below all of them."""
        rows = [
            {**one, PEAK.column: str(1000 + 7 * place % 60), LATENCY.column: one["model size, Gb"]}
            for place, one in enumerate(many(count))
        ]
        comparisons = compared(written(tmp_path / "a.csv", rows, [*HEADER, PEAK.column, LATENCY.column]))
        drawing = draw(comparisons, parse_bounds("error<=9%, peak<=2GiB"), also=(PEAK, LATENCY))

        assert drawing.unnamed == 0
        for place in range(3):
            check(*boxes(drawing, place))
        assert drawing.figure.legends[0].get_window_extent().y1 < drawing.figure.axes[-1].get_window_extent().y0
