from __future__ import annotations

import itertools
import math
import pathlib
from collections.abc import Sequence

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: TID253 — drawing is what is tested
from matplotlib.text import Annotation, Text  # noqa: TID253 — the same

from nncftools.compression.labels import Box, Labels
from nncftools.compression.legend import DOMINATED
from nncftools.compression.plot import MAX_NAMED, Drawing, draw, rendered
from nncftools.compression.recommend import bound_of
from nncftools.compression.results import Comparison
from tests.compression.made_up import HEADER, MADE_UP, changed, compared, four, many, row, written


def boxes(drawing: Drawing) -> tuple[list[Box], list[tuple[float, float]], Box]:
    """Return the positions of the names, the points and the axes, all in pixels."""
    renderer = FigureCanvasAgg(drawing.figure).get_renderer()  # type: ignore[no-untyped-call]
    (axes,) = drawing.figure.axes
    drawing.figure.draw(renderer)
    texts = [text for text in axes.texts if isinstance(text, Annotation)]
    extents = [Text.get_window_extent(text, renderer) for text in texts]
    points = [tuple(axes.transData.transform((result.error, result.rate))) for result, _ in drawing.points]
    frame = axes.get_window_extent(renderer)
    return [Box(*box.extents) for box in extents], points, Box(*frame.extents)


def check(names: Sequence[Box], points: Sequence[tuple[float, float]], frame: Box) -> None:
    """Fail when names overlap, cover a point or leave the axes."""
    marker = 4 * 120 / 72
    assert not [pair for pair in itertools.combinations(names, 2) if pair[0].overlaps(pair[1])]
    for name in names:
        assert name.within(frame)
        assert not [point for point in points if math.dist(name.nearest(point), point) < marker]


def texts(comparisons: Sequence[Comparison], **options: object) -> list[str]:
    """Return all text of a picture."""
    figure = draw(comparisons, **options).figure  # type: ignore[arg-type]
    return [found.get_text() for found in figure.findobj(Text) if isinstance(found, Text) and found.get_text()]


class TestNames:
    @pytest.mark.parametrize("count", [1, 3, 11, 40])
    def test_none_overlaps(self, tmp_path: pathlib.Path, count: int) -> None:
        """Every point has its name; none overlaps another, leaves the axes or covers a point."""
        drawing = draw(compared(written(tmp_path / "a.csv", many(count)), lenient=True))
        names, points, frame = boxes(drawing)

        assert (len(names), drawing.unnamed) == (count, 0)
        check(names, points, frame)

    def test_phi3(self, phi3: pathlib.Path) -> None:
        """The same for the published results of Phi-3."""
        names, points, frame = boxes(draw(compared(phi3), bound_of("error<=5%")))

        assert len(names) == 10
        check(names, points, frame)

    def test_equal_points(self, tmp_path: pathlib.Path) -> None:
        """Coinciding points are all named."""
        rows = [*four(), *(row("int4", **{"plot name": f"again {number}"}) for number in range(8))]
        drawing = draw(compared(written(tmp_path / "a.csv", rows)))
        names, points, frame = boxes(drawing)

        assert len(names) == 11
        check(names, points, frame)

    def test_too_many_are_counted(self, tmp_path: pathlib.Path) -> None:
        """Of too many points, the best are named without overlaps, and the others are counted."""
        drawing = draw(compared(written(tmp_path / "a.csv", many(120))))
        names, points, frame = boxes(drawing)

        assert len(names) <= MAX_NAMED
        assert len(names) + drawing.unnamed == 120
        check(names, points, frame)

    def test_always_the_same(self) -> None:
        """The same results give the same places."""
        sizes = [(60.0, 12.0)] * 30
        points = [(100 + 7.3 * (number * 13 % 30), 100 + 5.1 * (number * 7 % 30)) for number in range(30)]

        def places() -> list[object]:
            return list(Labels(points, Box(0, 0, 500, 400), 5).place_all(sizes))

        assert places() == places()

    def test_no_room(self) -> None:
        """A label that fits nowhere is not placed."""
        assert Labels([(50, 50)], Box(0, 0, 100, 100), 5).place_all([(200, 10)]) == [None]

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

        assert {"Made-up-7b, made up, gs64", "Average relative error", "LoRA correction", "GPTQ", "int8"} <= {*words}
        assert {"mixed precision", "data-free", "Pareto front", "lighter: dominated"} <= {*words}
        assert "other" not in words

    def test_dominated_points_are_lighter(self) -> None:
        """Points on the front are opaque, the others are not; the front is drawn."""
        drawing = draw(compared(MADE_UP))
        lines = {str(line.get_gid()): line for line in drawing.figure.axes[0].lines}
        opaque = {name: line.get_alpha() for name, line in lines.items() if name.startswith("row-")}

        assert [opaque[f"row-{number}"] for number in (1, 2, 3, 4)] == [1, 1, 1, 1]
        assert opaque["row-5"] == DOMINATED
        assert [line.get_drawstyle() for line in drawing.figure.axes[0].lines].count("steps-post") == 1

    def test_error_bars(self, tmp_path: pathlib.Path) -> None:
        """Standard errors are drawn as bars, and the axis label says so."""
        rows = [{**one, "WWB, similarity stderr": "0.04"} for one in four()]
        comparisons = compared(written(tmp_path / "a.csv", rows, [*HEADER, "WWB, similarity stderr"]))
        lines = draw(comparisons).figure.axes[0].lines

        assert sum(line.get_marker() == "|" for line in lines) == 3
        assert "Average relative error (bars: ± one standard error)" in texts(comparisons)

    def test_bound_and_recommendation(self) -> None:
        """A bound and the smallest model within it are marked."""
        words = texts(compared(MADE_UP), bound=bound_of("error<=5%"))

        assert "smallest with error ≤ 5%" in words

    def test_largest_error(self) -> None:
        """Rows beyond the largest error to draw are left out and counted."""
        drawing = draw(compared(MADE_UP), max_error=0.1)

        assert (len(drawing.points), drawing.left_out) == (4, 1)

    def test_several_models(self, tmp_path: pathlib.Path) -> None:
        """Several models have one colour and one front each."""
        comparisons = compared(MADE_UP, written(tmp_path / "a.csv", many(9)), lenient=True)
        drawing = draw(comparisons)
        steps = [line for line in drawing.figure.axes[0].lines if line.get_drawstyle() == "steps-post"]

        assert len({colour for _, colour in drawing.points}) == 2
        assert len({line.get_color() for line in steps}) == 2
        assert {comparison.name for comparison in comparisons} <= {*texts(comparisons)}

    @pytest.mark.parametrize("mode", ["something", "int8", "FP16"])
    def test_unusual_groups(self, tmp_path: pathlib.Path, mode: str) -> None:
        """Groups may be empty, and modes of any name."""
        drawing = draw(compared(written(tmp_path / "a.csv", [row("fp32"), row(mode)]), lenient=True))

        assert [result.row.mode for result, _ in drawing.points] == [mode]

    def test_baseline_alone(self, tmp_path: pathlib.Path) -> None:
        """A baseline without compressed models gives a message instead of points."""
        comparisons = compared(written(tmp_path / "a.csv", [row("fp32")]), lenient=True)

        assert "no compressed models to show" in texts(comparisons)

    def test_better_than_the_baseline(self, tmp_path: pathlib.Path) -> None:
        """A negative error is inside the picture."""
        drawing = draw(compared(written(tmp_path / "a.csv", changed(four(), 4, "lambada-openai, acc", "0.6"))))
        left, right = drawing.figure.axes[0].get_xlim()

        assert left < -0.05 < 0 < right

    @pytest.mark.parametrize(("kind", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
    def test_formats(self, kind: str, magic: bytes) -> None:
        """Every format is written, and the same picture gives the same bytes."""
        first, again = (rendered(draw(compared(MADE_UP)), kind) for _ in range(2))

        assert first.startswith(magic)
        assert first == again
