from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest

from nncftools.compression.reading import (
    FIGURES,
    ResultsError,
)
from nncftools.compression.results import (
    Comparison,
    Group,
    Result,
    choose,
    find_lines,
    group_of,
    pareto,
    parse_bounds,
    require,
    series_name,
)
from nncftools.errors import NncfToolsError, UsageError
from tests.compression.made_up import HEADER, MADE_UP, changed, compared, four, row, with_figures, written
from tests.made_up import rows


class TestFigures:
    @pytest.mark.parametrize(
        "column, cell", [("model size, Gb", "1e-300"), ("model size, Gb", "1e15"), (HEADER[7], "1e15")]
    )
    def test_impossible_figures(self, tmp_path: Path, column: str, cell: str) -> None:
        """Impossible figures are refused with their row."""
        with pytest.raises(NncfToolsError, match=r"a\.csv': row 4: error .*: check the numbers"):
            compared(written(tmp_path / "a.csv", changed(four(), 4, column, cell)))

    def test_standard_error(self, tmp_path: Path) -> None:
        """Standard errors of row and baseline add up in squares, each over its baseline and the number of metrics."""
        column = "lambada-openai, acc"
        rows = [
            {**one, column: "0.4" if one["mode"] == "int8" else "0.5", f"{column} stderr": "0.01"} for one in four()
        ]
        (comparison,) = compared(written(tmp_path / "a.csv", rows, [*HEADER, f"{column} stderr"]))
        by_mode = {result.row.mode: result.error_stderr for result in comparison.results}

        assert by_mode["fp32"] is None
        assert by_mode["int8"] == pytest.approx(math.hypot(0.01 / 0.5, 0.4 * 0.01 / 0.5**2) / 4)


class TestPareto:
    def test_is_what_nothing_beats(self) -> None:
        """A point is on the front exactly when no other is at least as good in both and better in one."""
        points = [(x / 7, (x * y) % 5 + y / 9) for x, y in itertools.product(range(6), range(7))]

        def beaten(point: tuple[float, float]) -> bool:
            return any(x <= point[0] and y >= point[1] and (x, y) != point for x, y in points)

        assert pareto(points) == {place for place, point in enumerate(points) if not beaten(point)}


@pytest.mark.parametrize(
    "mode, int4, expected",
    [
        ("int8", 0, Group.INT8),
        ("INT8_ASYM", 0, Group.INT8),
        ("int4 + scale estimation + LoRA correction", 1, Group.LORA),
        ("int4 + gptq", 0.8, Group.GPTQ),
        ("int4", 0.6, Group.MIXED),
        ("int4 + scale estimation", 1, Group.DATA_AWARE),
        ("int4_sym + awq", 1, Group.DATA_AWARE),
        ("int4", 1, Group.DATA_FREE),
        ("NF4", 1, Group.DATA_FREE),
        ("mxfp4", 1, Group.DATA_FREE),
        ("ternary", 0, Group.OTHER),
    ],
)
def test_group(mode: str, int4: float, expected: Group) -> None:
    """The kind follows from the words of the mode and the share of int4, not from exact names."""
    assert group_of(mode, int4) is expected


class TestNames:
    def test_same_model_in_two_files(self, tmp_path: Path) -> None:
        """The same model in two set-ups is distinguished by them, or else by the file names."""
        asym = ["model, int4_asym", *HEADER[1:]]
        rows = [{**one, asym[0]: one[HEADER[0]]} for one in four()]
        a, b = written(tmp_path / "a.csv", four()), written(tmp_path / "b.csv", rows, asym)
        c = written(tmp_path / "c.csv", four())

        assert [one.name for one in compared(a, b)] == ["Made-up-7b, made up", "Made-up-7b, int4_asym"]
        assert [one.name for one in compared(a, c)] == ["Made-up-7b, a", "Made-up-7b, c"]


def results(folder: Path, *modes: tuple[str, float]) -> list[Result]:
    """Return the results of rows with these modes and shares of int4."""
    rows = [row("fp32"), *(row(mode, **{"%int4": int4, "%int8": 0}) for mode, int4 in modes)]
    (comparison,) = compared(written(folder / "a.csv", rows))
    return [result for result in comparison.results if result.row is not comparison.model.baseline]


@pytest.mark.parametrize(
    "share, modes, expected",
    rows("""
1 | int4 + scale estimation + gptq | 100% int4, gptq + scale estimation
1 | int4 + awq + LoRA  correction | 100% int4, LoRA correction + awq
1 | int4 + gptq; INT4 + GPTQ + awq | 100% int4, gptq
1 | gptq; int4 + awq + gptq | 100% int4, gptq
1 | int4 + lora; int4 + lora correction | 100% int4, LoRA correction
1 | int4 | 100% int4, data-free
1 | int4 symmetric; nf4 | 100% 4-bit, data-free
1 | mxfp4 + awq | 100% mxfp4, awq
1 | int4 + awq; int4 + scale estimation | 100% int4, data-aware
0.6 | int4 + scale estimation | mixed precision, scale estimation
0.6 | int4; int4 + awq | mixed precision
0.6 | int4 + gptq | gptq
0.6 | int8 + + gptq | gptq
0.6 | + | mixed precision
0.6 | int4_sym + lora; int4_sym + lora + awq | lora
"""),
)
def test_name(tmp_path: Path, share: str, modes: str, expected: str) -> None:
    """Common algorithms are named, the kind's own first, and the precision if the results are fully compressed."""
    assert series_name(results(tmp_path, *((mode, float(share)) for mode in modes.split("; ")))) == expected


class TestJoined:
    def test_ends_at_the_whole(self, tmp_path: Path) -> None:
        """The line grows with the share of int4 and ends at 100 % of the same algorithms, in any order of naming."""
        found = results(tmp_path, ("int4 + awq", 1), ("int4", 1), ("awq + int4", 0.4), ("INT4 + awq", 0.8))

        assert [[result.row.int4 for result in series] for series in find_lines(found)] == [[0.4, 0.8, 1]]

    def test_ambiguous_share(self, tmp_path: Path) -> None:
        """Two results with the same algorithms and share belong to no line."""
        assert find_lines(results(tmp_path, ("int4", 0.5), ("int4", 0.5), ("int4", 1))) == []


@pytest.mark.parametrize(
    "text, mode",
    rows("""
error<=5% | int4 + scale estimation
Error < 5 % | int4 + scale estimation + lora correction
error ≤ 0.085 | int4 + scale estimation + gptq
error<=20% | int4 + scale estimation + gptq
error<=0% | fp32
"""),
)
def test_smallest_under_the_bound(text: str, mode: str) -> None:
    """The smallest model within the bound is recommended, among equals the one with the least error."""
    best = choose(compared(MADE_UP)[0], parse_bounds(text)).best

    assert best is not None
    assert best.row.mode == mode


@pytest.fixture
def measured(tmp_path: Path) -> Comparison:
    """Return the four rows with figures; their sizes are 8, 2, 1 and 1 GiB."""
    return compared(with_figures(tmp_path / "a.csv"))[0]


@pytest.mark.parametrize(
    "text, mode",
    rows("""
error<=5%, peak<=6000MiB | int4
peak<=4.5GiB | int4
peak <= 4G | int8
PEAK≤4.1 gib | int8
inference peak<=2GiB | int4
inference-peak<1.4GiB | int4 + gptq
latency<=100ms | int4
latency<20 ms | int4 + gptq
first token<0.13s | int4 + gptq
time<=1min | int4
time<=1 s | int8
time<=0.5h, size<1.5GiB, error<50% | int4
size<=1Gb | int4
"""),
)
def test_several_bounds(measured: Comparison, text: str, mode: str) -> None:
    """All bounds hold for the recommended model; the upper end of a peak counts."""
    best = choose(measured, parse_bounds(text)).best

    assert best is not None
    assert best.row.mode == mode


@pytest.mark.parametrize("cell", ["", "much", "nan", "inf", "-1", "0"])
def test_no_figure(tmp_path: Path, cell: str) -> None:
    """What is no figure above 0 is unknown."""
    (comparison,) = compared(with_figures(tmp_path / "a.csv", changes={"per token, s": cell}))
    choice = choose(comparison, parse_bounds("latency<=10s"))

    assert (choice.best, choice.left_out) == (None, 4)


def test_missing_column(measured: Comparison) -> None:
    """A figure whose column the file lacks is an error that names the column, and a similar one."""
    (other,) = compared(MADE_UP)
    with pytest.raises(ResultsError) as caught:
        require([measured.model, other.model], parse_bounds("error<5%, size<8GiB, time<1min").figures)

    assert str(caught.value) == (
        f"{str(MADE_UP)!r}: 'time' needs the column 'compression time, s', which the file does not have "
        "(found 'compression time, min')"
    )
    require([measured.model], FIGURES)


@pytest.mark.parametrize(
    "text, message",
    rows("""
error | 'error<=5%' or 'error<=5%, peak<=8GiB' expected, found
error<= | 'error<=5%' or 'error<=5%, peak<=8GiB' expected, found
error>=5% | 'error<=5%' or 'error<=5%, peak<=8GiB' expected, found
rate>=4 | 'error<=5%' or 'error<=5%, peak<=8GiB' expected, found
error<=5%, | 'error<=5%' or 'error<=5%, peak<=8GiB' expected, found
, | 'error<=5%' or 'error<=5%, peak<=8GiB' expected, found
error<=5%<6% | 'error<=5%' or 'error<=5%, peak<=8GiB' expected, found
error<=x% | 'error<=5%' or 'error<0.05' expected
error<=5 | means 500%; write 'error<=5%'
error<=-1% | 'error<=5%' or 'error<0.05' expected
error<=nan% | 'error<=5%' or 'error<0.05' expected
error<=5GiB | 'error<=5%' or 'error<0.05' expected
peek<=8GiB | first token; did you mean peak?
error<5%, Latancy<1s | bound 'latancy' is not one of error, size
colour<3 | bound 'colour' is not one of error, size, peak, inference peak, time, latency, first token
peak<=8 | 'peak<=8': a size above 0 with its unit
peak<=5% | 'peak<=5%': a size above 0 with its unit
latency<=100 | 'latency<=100': a time above 0 with its unit expected
latency<=1GiB | 'latency<=1GiB': a time expected
time<=0s | 'time<=0s': a time above 0
error<5%, error<3% | bounds 'error' twice
"""),
)
def test_wrong_bounds(text: str, message: str) -> None:
    """Anything that is no bound is refused with an example, or with the names or units that there are."""
    with pytest.raises(UsageError) as caught:
        parse_bounds(text)

    assert message in str(caught.value)
