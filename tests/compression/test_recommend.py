from __future__ import annotations

import json
import pathlib

import pytest

from nncftools.compression.outputs import rows
from nncftools.compression.reading import FIGURES, ResultsError
from nncftools.compression.results import Comparison, bounds_of, chosen, left_out_text, require
from nncftools.errors import UsageError
from tests.compression.made_up import MADE_UP, changed, compared, four, with_figures, written


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("error<=5%", "int4 + scale estimation"),
        ("Error < 5 %", "int4 + scale estimation + lora correction"),
        ("error ≤ 0.085", "int4 + scale estimation + gptq"),
        ("error<=20%", "int4 + scale estimation + gptq"),
        ("error<=0%", "fp32"),
    ],
)
def test_smallest_under_the_bound(text: str, mode: str) -> None:
    """The smallest model within the bound is recommended, among equals the one with the least error."""
    best = chosen(compared(MADE_UP)[0], bounds_of(text)).best

    assert best is not None
    assert best.row.mode == mode


def test_none(tmp_path: pathlib.Path) -> None:
    """Without a row within the bound, there is no recommendation."""
    changes = changed(four(), 2, "WWB, similarity", "0.9")
    (comparison,) = compared(written(tmp_path / "a.csv", [{**one, "WWB, similarity": "0.9"} for one in changes]))

    assert chosen(comparison, bounds_of("error<1%")).best is None


@pytest.fixture
def measured(tmp_path: pathlib.Path) -> Comparison:
    """Return the four rows with figures; their sizes are 8, 2, 1 and 1 GiB."""
    return compared(with_figures(tmp_path / "a.csv"))[0]


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("error<=5%, peak<=6000MiB", "int4"),
        ("peak<=4.5GiB", "int4"),
        ("peak <= 4G", "int8"),
        ("PEAK≤4.1 gib", "int8"),
        ("inference peak<=2GiB", "int4"),
        ("inference-peak<1.4GiB", "int4 + gptq"),
        ("latency<=100ms", "int4"),
        ("latency<20 ms", "int4 + gptq"),
        ("first token<0.13s", "int4 + gptq"),
        ("time<=1min", "int4"),
        ("time<=1 s", "int8"),
        ("time<=0.5h, size<1.5GiB, error<50%", "int4"),
        ("size<=1Gb", "int4"),
    ],
)
def test_several_bounds(measured: Comparison, text: str, mode: str) -> None:
    """All bounds hold for the recommended model; the upper end of a peak counts."""
    best = chosen(measured, bounds_of(text)).best

    assert best is not None
    assert best.row.mode == mode


@pytest.mark.parametrize(("text", "count"), [("size<1GiB", 0), ("size<1Gb", 0), ("size<=1.08GB", 2), ("size<=1GB", 0)])
def test_units_of_sizes(measured: Comparison, text: str, count: int) -> None:
    """The column's Gb is GiB, and GB is decimal; a limit itself is accepted only with an equals sign."""
    bounds = bounds_of(text)

    assert sum(bounds.hold(result) is True for result in measured.results) == count


def test_unknown_does_not_satisfy(measured: Comparison) -> None:
    """A row without a bounded figure is left out and counted, unless another bound excludes it anyway."""
    choice = chosen(measured, bounds_of("peak<=4.4GiB, time<=90s"))
    without_fp32 = chosen(measured, bounds_of("peak<=4.4GiB, time<=90s, size<4GiB"))

    assert (choice.left_out, left_out_text(choice)) == (1, "1 row left out, peak or time unknown")
    assert (without_fp32.left_out, left_out_text(without_fp32)) == (0, "")


@pytest.mark.parametrize("cell", ["", "much", "nan", "inf", "-1", "0"])
def test_no_figure(tmp_path: pathlib.Path, cell: str) -> None:
    """What is no figure above 0 is unknown."""
    (comparison,) = compared(with_figures(tmp_path / "a.csv", changes={"per token, s": cell}))
    choice = chosen(comparison, bounds_of("latency<=10s"))

    assert (choice.best, choice.left_out) == (None, 4)


def test_json_has_it(measured: Comparison) -> None:
    """JSON says of every row whether it is within the bounds, null when unknown, and has figures as numbers."""
    found = json.loads(json.dumps(rows([measured], bounds_of("peak<=4GiB"))))

    assert [(one["mode"], one["within bounds"], one["recommended"]) for one in found] == [
        ("fp32", None, False),
        ("int8", True, True),
        ("int4", False, False),
        ("int4 + gptq", False, False),
    ]
    assert [one["peak memory, MiB"] for one in found] == [None, 3000, 4300, 5000]
    assert found[0]["peak owner"] == "optimum-cli"


def test_missing_column(measured: Comparison) -> None:
    """A figure whose column the file lacks is an error that names the column, and a similar one."""
    (other,) = compared(MADE_UP)
    with pytest.raises(ResultsError) as caught:
        require([measured.model, other.model], bounds_of("error<5%, size<8GiB, time<1min").figures)

    assert str(caught.value) == (
        f"{str(MADE_UP)!r}: 'time' needs the column 'compression time, s', which the file does not have "
        "(found 'compression time, min')"
    )
    require([measured.model], FIGURES)


@pytest.mark.parametrize("text", ["error", "error<=", "error>=5%", "rate>=4", "error<=5%,", ",", "error<=5%<6%"])
def test_what_is_no_bound(text: str) -> None:
    """Anything else is refused with an example."""
    with pytest.raises(UsageError, match=r"'error<=5%' or 'error<=5%, peak<=8GiB' expected, found"):
        bounds_of(text)


@pytest.mark.parametrize("text", ["error<=x%", "error<=-1%", "error<=nan%", "error<=5GiB"])
def test_what_is_no_error(text: str) -> None:
    """An error is a fraction or a percentage."""
    with pytest.raises(UsageError, match=r"'error<=5%' or 'error<0\.05' expected"):
        bounds_of(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("peek<=8GiB", "no bound is called 'peek'; did you mean 'peak'?"),
        ("error<5%, Latancy<1s", "no bound is called 'Latancy'; did you mean 'latency'?"),
        (
            "colour<3",
            "no bound is called 'colour'; one of error, size, peak, inference peak, time, latency, first token",
        ),
        ("peak<=8", "'peak<=8': a size above 0 with its unit"),
        ("peak<=5%", "'peak<=5%': a size above 0 with its unit"),
        ("latency<=100", "'latency<=100': a time above 0 with its unit expected"),
        ("latency<=1GiB", "'latency<=1GiB': a time expected"),
        ("time<=0s", "'time<=0s': a time above 0"),
        ("error<5%, error<3%", "bounds 'error' twice"),
    ],
)
def test_wrong_bounds(text: str, message: str) -> None:
    """An unknown name, a wrong unit or a repeated name is refused with what helps."""
    with pytest.raises(UsageError) as caught:
        bounds_of(text)

    assert message in str(caught.value)


def test_five_is_not_five_percent() -> None:
    """A bound above 1 without a percent sign is refused."""
    with pytest.raises(UsageError, match="means 500%; write 'error<=5%'"):
        bounds_of("error<=5")
