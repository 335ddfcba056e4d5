from __future__ import annotations

import itertools
import math
import pathlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox

from nncftools.compression.picture import DOMINATED, MAX_NAMED, Drawing, draw, render
from nncftools.compression.reading import LATENCY, PEAK, TIME
from nncftools.compression.results import Comparison, bounds_of, find_far_error
from tests.compression.made_up import (
    HEADER,
    MADE_UP,
    changed,
    compared,
    four,
    many,
    row,
    with_figures,
    without_int8,
    written,
)


def boxes(drawing: Drawing) -> tuple[list[Bbox], list[tuple[float, float]], Bbox]:
    """Return the positions of the names, the points and the axes, all in pixels."""
    renderer = FigureCanvasAgg(drawing.figure).get_renderer()  # type: ignore[no-untyped-call]
    (axes,) = drawing.figure.axes
    drawing.figure.draw(renderer)
    texts = [text for text in axes.texts if isinstance(text, Annotation)]
    names = [Bbox(Text.get_window_extent(text, renderer)) for text in texts]
    points = [tuple(axes.transData.transform((result.error, result.rate))) for result, _ in drawing.points]
    return names, points, Bbox(axes.get_window_extent(renderer))


def check(names: Sequence[Bbox], points: Sequence[tuple[float, float]], frame: Bbox) -> None:
    """Fail when names overlap, cover a point or leave the axes."""
    marker = 4 * 120 / 72
    assert not [pair for pair in itertools.combinations(names, 2) if pair[0].fully_overlaps(pair[1])]
    for name in names:
        assert all(frame.contains(*corner) for corner in name.corners())
        assert not [point for point in points if math.dist(np.clip(point, name.min, name.max), point) < marker]


def handles(figure: Figure) -> list[Line2D]:
    """Return the lines of the legend."""
    return [handle for handle in figure.legends[0].legend_handles if isinstance(handle, Line2D)]


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
    def test_none_overlaps(self, tmp_path: pathlib.Path, count: int) -> None:
        """Every point has its name; none overlaps another, leaves the axes or covers a point."""
        drawing = draw(compared(written(tmp_path / "a.csv", many(count))))
        names, points, frame = boxes(drawing)

        assert (len(names), drawing.unnamed) == (count, 0)
        check(names, points, frame)

    def test_phi3(self, phi3: pathlib.Path) -> None:
        """The same for the published results of Phi-3."""
        names, points, frame = boxes(draw(compared(phi3), bounds_of("error<=5%")))

        assert len(names) == 10
        check(names, points, frame)

    def test_equal_points(self, tmp_path: pathlib.Path) -> None:
        """Coinciding points are all named."""
        rows = [*four(), *(row("int4", **{"plot name": f"again {number}"}) for number in range(8))]
        drawing = draw(compared(written(tmp_path / "a.csv", rows)))
        names, points, frame = boxes(drawing)

        assert len(names) == 11
        check(names, points, frame)

    @pytest.mark.long
    def test_too_many_are_counted(self, tmp_path: pathlib.Path) -> None:
        """Of too many points, the best are named without overlaps, and the others are counted."""
        drawing = draw(compared(written(tmp_path / "a.csv", many(120))))
        names, points, frame = boxes(drawing)

        assert len(names) <= MAX_NAMED
        assert len(names) + drawing.unnamed == 120
        check(names, points, frame)

    def test_no_room(self, tmp_path: pathlib.Path) -> None:
        """Names that fit nowhere are counted."""
        rows = [*four(), *(row("int4", **{"plot name": f"{number} {'x' * 38}"}) for number in range(80))]

        assert draw(compared(written(tmp_path / "a.csv", rows))).unnamed > 0

    def test_hostile_names(self, tmp_path: pathlib.Path) -> None:
        """Names are drawn literally: no formulas, no control characters, shortened when long."""
        rows = changed(changed(four(), 3, "plot name", "$\\frac{1}{"), 4, "plot name", "\x1b[31m\n" + "x" * 500)
        rows = changed(rows, 5, "plot name", "量化")
        words = texts(compared(written(tmp_path / "a.csv", rows)))

        assert "$\\frac{1}{" in words
        assert max(map(len, words)) <= 60
        assert not any("\x1b" in word for word in words)
        assert "量化" in words


class TestPicture:
    def test_says_what_it_shows(self) -> None:
        """Title, axes, kinds, the front and the meaning of lighter points are shown."""
        words = texts(compared(MADE_UP))

        assert {"Made-up-7b, made up, gs64", "Average relative error", "int8", "100% int4, data-free"} <= {*words}
        assert {"100% int4, lora correction + scale estimation", "100% int4, gptq + scale estimation"} <= {*words}
        assert {"mixed precision, scale estimation", "Pareto front", "lighter: dominated"} <= {*words}
        assert "other" not in words

    def test_dominated_points_are_lighter(self) -> None:
        """Points on the front are opaque, the others are not; the front is drawn."""
        drawing = draw(compared(MADE_UP))
        lines = {str(line.get_gid()): line for line in drawing.figure.axes[0].lines}
        opaque = {name: line.get_alpha() for name, line in lines.items() if name.startswith("row-")}

        assert [opaque[f"row-{number}"] for number in (1, 2, 3, 4)] == [1, 1, 1, 1]
        assert opaque["row-5"] == DOMINATED
        assert [line.get_drawstyle() for line in drawing.figure.axes[0].lines].count("steps-post") == 1

    def test_mixed_precision_is_joined(self, tmp_path: pathlib.Path) -> None:
        """A dashed line joins the shares of int4 up to 100 % of the same algorithms; the legend shows it."""
        (comparison,) = compared(written(tmp_path / "a.csv", without_int8()))
        figure = draw([comparison]).figure
        (line,) = [line for line in figure.axes[0].lines if line.get_linestyle() == "--"]
        rates = {result.label: result.rate for result in comparison.results}
        dashed = [entry.get_label() for entry in handles(figure) if entry.get_linestyle() == "--"]

        assert list(line.get_ydata()) == [rates[f"{share}% int4"] for share in (40, 60, 80, 100)]
        assert dashed == ["mixed precision, awq + scale estimation"]

    def test_one_share_has_no_line(self) -> None:
        """A single share of int4 has neither a line nor a dash in the legend."""
        figure = draw(compared(MADE_UP)).figure

        assert "--" not in {line.get_linestyle() for line in [*figure.axes[0].lines, *handles(figure)]}

    def test_names_keep_off_lines(self, tmp_path: pathlib.Path) -> None:
        """No name is on the front, nor on the line of mixed precision."""
        drawing = draw(compared(written(tmp_path / "a.csv", without_int8())))

        assert names_on_lines(drawing) == []

    @pytest.mark.long
    def test_names_keep_off_lines_of_phi3(self, phi3: pathlib.Path) -> None:
        """The same for the published results of Phi-3."""
        assert names_on_lines(draw(compared(phi3))) == []

    @pytest.mark.parametrize("words", [1, 4, 30])
    def test_legend_is_below(self, tmp_path: pathlib.Path, words: int) -> None:
        """The legend is below the panel and inside the picture, however long the names of algorithms are."""
        rows = [{**one, "mode": " + ".join([one["mode"], *["scale estimation"] * words])} for one in without_int8()]
        drawing = draw(compared(written(tmp_path / "a.csv", rows)))
        _, _, frame = boxes(drawing)
        legend = drawing.figure.legends[0].get_window_extent()

        assert legend.y1 < frame.y0
        assert drawing.figure.bbox.contains(legend.x0, legend.y0)
        assert drawing.figure.bbox.contains(legend.x1, legend.y1)

    def test_no_line_shows_through_a_point(self) -> None:
        """There is white below a light marker."""
        points = [line for line in draw(compared(MADE_UP)).figure.axes[0].lines if len(line.get_xydata()) == 1]
        light = [line.get_xydata().tolist() for line in points if line.get_alpha() == DOMINATED]
        white = [line.get_xydata().tolist() for line in points if line.get_color() == "white"]

        assert white == light != []

    def test_error_bars(self, tmp_path: pathlib.Path) -> None:
        """Standard errors are drawn as bars, and the axis label says so."""
        rows = [{**one, "WWB, similarity stderr": "0.04"} for one in four()]
        comparisons = compared(written(tmp_path / "a.csv", rows, [*HEADER, "WWB, similarity stderr"]))
        lines = draw(comparisons).figure.axes[0].lines

        assert sum(line.get_marker() == "|" for line in lines) == 3
        assert "Average relative error (bars: ± one standard error)" in texts(comparisons)

    def test_bound_and_recommendation(self) -> None:
        """A bound and the smallest model within it are marked."""
        words = texts(compared(MADE_UP), bounds=bounds_of("error<=5%"))

        assert "smallest with error ≤ 5%" in words

    def test_largest_error(self) -> None:
        """Rows beyond the largest error to draw are left out and named."""
        drawing = draw(compared(MADE_UP), max_error=0.1)

        assert (len(drawing.points), len(drawing.left_out)) == (4, 1)
        assert drawing.figure.axes[-1].get_xlabel().endswith(f" (not drawn: {drawing.left_out[0]})")

    @pytest.mark.parametrize(
        ("errors", "limit"),
        [
            ((0, 0.01, 0.05, 0.1, 0.2), math.inf),
            ((0, 0.01, 0.05, 0.1, 192.6), 0.1),
            ((0, 0.001, 0.0011, 0.19), math.inf),
            ((0, 100, 200, 300), math.inf),
        ],
    )
    def test_far_errors(self, errors: tuple[float, ...], limit: float) -> None:
        """Only errors far beyond most others are not drawn."""
        results: Any = SimpleNamespace(results=[SimpleNamespace(error=error) for error in errors])

        assert find_far_error([results]) == limit

    def test_several_models(self, tmp_path: pathlib.Path) -> None:
        """Several models have one colour and one front each."""
        comparisons = compared(MADE_UP, written(tmp_path / "a.csv", many(9)))
        drawing = draw(comparisons)
        steps = [line for line in drawing.figure.axes[0].lines if line.get_drawstyle() == "steps-post"]

        assert len({colour for _, colour in drawing.points}) == 2
        assert len({line.get_color() for line in steps}) == 2
        assert {comparison.name for comparison in comparisons} <= {*texts(comparisons)}

    @pytest.mark.parametrize("mode", ["something", "int8", "FP16"])
    def test_unusual_groups(self, tmp_path: pathlib.Path, mode: str) -> None:
        """Groups may be empty, and modes of any name."""
        drawing = draw(compared(written(tmp_path / "a.csv", [row("fp32"), row(mode)])))

        assert [result.row.mode for result, _ in drawing.points] == [mode]

    def test_baseline_alone(self, tmp_path: pathlib.Path) -> None:
        """A baseline without compressed models gives a message instead of points."""
        comparisons = compared(written(tmp_path / "a.csv", [row("fp32")]))

        assert "no compressed models to show" in texts(comparisons)

    def test_better_than_the_baseline(self, tmp_path: pathlib.Path) -> None:
        """A negative error is inside the picture."""
        drawing = draw(compared(written(tmp_path / "a.csv", changed(four(), 4, "lambada-openai, acc", "0.6"))))
        left, right = drawing.figure.axes[0].get_xlim()

        assert left < -0.05 < 0 < right

    @pytest.mark.parametrize(
        ("kind", "magic"),
        [
            pytest.param("png", b"\x89PNG", marks=pytest.mark.long),
            ("svg", b"<?xml"),
            pytest.param("pdf", b"%PDF", marks=pytest.mark.long),
        ],
    )
    def test_formats(self, kind: str, magic: bytes) -> None:
        """Every format is written, and the same picture gives the same bytes."""
        first, again = (render(draw(compared(MADE_UP)), kind) for _ in range(2))

        assert first.startswith(magic)
        assert first == again


class TestPanels:
    def drawn(self, folder: pathlib.Path, bounds: str = "") -> Drawing:
        """Draw the four rows with panels of peak and latency."""
        comparisons = compared(with_figures(folder / "a.csv"))
        return draw(comparisons, bounds_of(bounds) if bounds else None, also=(PEAK, LATENCY))

    def test_share_errors(self, tmp_path: pathlib.Path) -> None:
        """Each figure has a panel below the compression rate with the same scale of errors and its unit."""
        main, peak, latency = self.drawn(tmp_path).figure.axes

        assert main.get_xlim() == peak.get_xlim() == latency.get_xlim()
        assert main.get_position().y0 > peak.get_position().y1 > peak.get_position().y0 > latency.get_position().y1
        assert [peak.get_ylabel(), latency.get_ylabel()] == [
            "Peak memory of compression (GiB)",
            "Latency per token (ms)",
        ]
        assert [axes.get_xlabel() for axes in (main, peak, latency)] == ["", "", "Average relative error"]

    def test_same_looks(self, tmp_path: pathlib.Path) -> None:
        """A result has the same marker, colour and name in every panel, and an id of its own."""
        figure = self.drawn(tmp_path).figure
        looks = [
            {str(line.get_gid())[-5:]: (line.get_marker(), line.get_color()) for line in axes.lines if line.get_gid()}
            for axes in figure.axes
        ]
        ids = [str(line.get_gid()) for line in figure.axes[1].lines if line.get_gid()]

        assert looks[0] == looks[1] == looks[2]
        assert ids == ["panel-1-row-1", "panel-1-row-2", "panel-1-row-3"]
        assert [sorted(text.get_text() for text in axes.texts) for axes in figure.axes] == [
            ["int4", "int4 + gptq", "int8"]
        ] * 3

    def test_figures(self, tmp_path: pathlib.Path) -> None:
        """A point is at the figure in the unit of the scale; a bracket is a bar below its upper end."""
        _, peak, latency = self.drawn(tmp_path).figure.axes
        points = {str(line.get_gid()): float(line.get_ydata()[0]) for axes in (peak, latency) for line in axes.lines}
        bars = [list(line.get_ydata()) for line in peak.lines if line.get_marker() == "_"]

        assert points["panel-1-row-1"] == 4000 / 1024
        assert points["panel-2-row-3"] == pytest.approx(12.3456)
        assert bars == [[3000 / 1024, 4000 / 1024], [5000 / 1024, 5500 / 1024]]
        assert peak.get_title(loc="left") == "bars: from the lower to the upper bound"

    def test_front_of_each_panel(self, tmp_path: pathlib.Path) -> None:
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

    def test_baseline_dominates(self, tmp_path: pathlib.Path) -> None:
        """A result that needs more than the baseline is dominated: the baseline has no error."""
        rows = [
            {**one, LATENCY.column: "1" if one["mode"] == "fp32" else "2", "WWB, similarity": "0.9"} for one in four()
        ]
        rows[0]["WWB, similarity"] = "1"
        axes = draw(
            compared(written(tmp_path / "a.csv", rows, [*HEADER, LATENCY.column])), also=(LATENCY,)
        ).figure.axes[1]

        assert {line.get_alpha() for line in axes.lines if line.get_gid()} == {DOMINATED}

    def test_unknown_is_counted(self, tmp_path: pathlib.Path) -> None:
        """Rows without the figure are not in the panel, which says how many; without any, it says so."""
        rows = [{**one, PEAK.column: cell} for one, cell in zip(four(), ("", "10", "", "30"), strict=True)]
        some = draw(compared(written(tmp_path / "a.csv", rows, [*HEADER, PEAK.column])), also=(PEAK,)).figure.axes[1]
        rows = [{**one, PEAK.column: ""} for one in four()]
        none = draw(compared(written(tmp_path / "b.csv", rows, [*HEADER, PEAK.column])), also=(PEAK,)).figure.axes[1]

        assert some.get_title(loc="left") == "unknown, not shown: 1"
        assert [text.get_text() for text in none.texts] == ["no row has this figure"]

    def test_wide_range_is_logarithmic(self, tmp_path: pathlib.Path) -> None:
        """A figure that differs by more than ten times has a logarithmic scale."""
        drawing = draw(compared(with_figures(tmp_path / "a.csv")), also=(TIME, PEAK))

        assert [axes.get_yscale() for axes in drawing.figure.axes] == ["linear", "log", "linear"]

    def test_bounds(self, tmp_path: pathlib.Path) -> None:
        """A bound is a line in the panel of its figure, that of size among the rates; each panel has the ring."""
        axes = self.drawn(tmp_path, "size<1.5GiB, peak<5GiB, latency<1h").figure.axes
        dotted = [[list(line.get_ydata()) for line in one.lines if line.get_linestyle() == ":"] for one in axes]
        rings = [[line.get_ydata()[0] for line in one.lines if line.get_markersize() == 15] for one in axes]

        assert dotted == [[[pytest.approx(8 / 1.5)] * 2], [[5, 5]], []]
        assert rings == [[8], [pytest.approx(4300 / 1024)], [pytest.approx(30)]]

    @pytest.mark.parametrize("count", [4, *(pytest.param(of, marks=pytest.mark.long) for of in (16, 40))])
    def test_names(self, tmp_path: pathlib.Path, count: int) -> None:
        """No name overlaps another one or a point in any panel, and the legend is below all of them."""
        rows = [
            {**one, PEAK.column: str(1000 + 7 * place % 60), LATENCY.column: one["model size, Gb"]}
            for place, one in enumerate(many(count))
        ]
        comparisons = compared(written(tmp_path / "a.csv", rows, [*HEADER, PEAK.column, LATENCY.column]))
        drawing = draw(comparisons, bounds_of("error<=9%, peak<=2GiB"), also=(PEAK, LATENCY))
        renderer = FigureCanvasAgg(drawing.figure).get_renderer()  # type: ignore[no-untyped-call]
        drawing.figure.draw(renderer)

        assert drawing.unnamed == 0
        for axes in drawing.figure.axes:
            found = [text for text in axes.texts if isinstance(text, Annotation)]
            marks = [line for line in axes.lines if line.get_gid()]
            points = [tuple(axes.transData.transform(line.get_xydata()[0])) for line in marks]
            names = [Bbox(Text.get_window_extent(text, renderer)) for text in found]
            check(names, points, Bbox(axes.get_window_extent(renderer)))
        assert drawing.figure.legends[0].get_window_extent().y1 < drawing.figure.axes[-1].get_window_extent().y0

    def test_baseline_alone(self, tmp_path: pathlib.Path) -> None:
        """A baseline without compressed models gives a message in every panel."""
        rows = [{**row("fp32"), PEAK.column: "10"}]
        figure = draw(compared(written(tmp_path / "a.csv", rows, [*HEADER, PEAK.column])), also=(PEAK,)).figure

        assert [axes.texts[0].get_text() for axes in figure.axes] == ["no compressed models to show"] * 2

    def test_several_models(self, tmp_path: pathlib.Path) -> None:
        """Several models have one colour each in every panel."""
        comparisons = compared(with_figures(tmp_path / "a.csv"), with_figures(tmp_path / "b.csv"))
        drawing = draw(comparisons, bounds_of("size<1GiB"), also=(PEAK,))
        colours = [{line.get_color() for line in axes.lines if line.get_gid()} for axes in drawing.figure.axes]

        assert len(colours[0]) == 2
        assert colours[0] == colours[1]
