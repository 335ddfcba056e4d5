from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from nncftools.analysis import forecast
from nncftools.analysis.forecast_lines import Point, Slice, measure_points
from nncftools.session.model import Mark, OwnMemory, Rise
from tests.made_up import marks, mib, process, session

MIB = 1 << 20
COUNTS = 2, 4, 6


def read_sizes(cost: str, counts: Sequence[int]) -> list[float]:
    """Return bytes by slice of a line of MiB such as ``1000+100k``, with k layers, or of one size for each slice."""
    if not cost.endswith("k"):
        return [float(size) * MIB for size in cost.split()]
    base, _, slope = cost.removesuffix("k").partition("+")
    return [(float(base) + float(slope) * count) * MIB for count in counts]


def of(
    counts: Sequence[int] = COUNTS, floor: str = "", peak: str = "", **operations: str | Mapping[str, str]
) -> list[Slice]:
    """Return slices whose operations hold so much; by default the floor is half of the peak of the operations."""
    points: list[list[Point]] = [[] for _ in counts]
    for name, cost in operations.items():
        costs = cost if isinstance(cost, Mapping) else {"peak": cost}
        sizes = {figure: read_sizes(text, counts) for figure, text in costs.items()}
        for number, of_slice in enumerate(points):
            of_slice.append(Point(operation=name, place=1, **{figure: of[number] for figure, of in sizes.items()}))
    slices = []
    for number, count in enumerate(counts):
        held = [size for point in points[number] for size in (point.start, point.peak, point.end) if size is not None]
        largest = round(read_sizes(peak, counts)[number] if peak else max(held, default=100 * MIB))
        least = round(read_sizes(floor, counts)[number]) if floor else largest // 2
        part = Slice(count, "", 5.0 + count, peak=largest, floor=least, comfortable=least + MIB)
        slices.append(replace(part, written=count * MIB, points=points[number]))
    return slices


def known_of(slices: Sequence[Slice], layers: int = 16, layer_parameters: int = 0) -> forecast.Forecast:
    """Return the forecast, which is known."""
    known = forecast.forecast(slices, layers, layer_parameters)
    assert known is not None
    return known


def peak(slices: Sequence[Slice]) -> forecast.Estimate:
    """Return the forecast peak in MiB."""
    known = known_of(slices)
    low, value, high = (size / MIB for size in (known.peak.low, known.peak.value, known.peak.high))
    return forecast.Estimate(value, low, high, known.peak.is_at_least)


def test_highest_line() -> None:
    """An operation that is the lower one in all slices wins with all layers; a line through the runs' peaks fails."""
    known = known_of(of(Load="1700+1k", Saving="800+180k"))

    assert known.peak.value == pytest.approx(3680 * MIB)
    assert (known.operation, known.holds_from, known.before) == ("Saving", 5, "Load")
    assert not known.peak.is_at_least


def test_interval() -> None:
    """The interval is at least 3 %, and wider where points are off their line."""
    exact, noisy = peak(of(A="1000+100k")), peak(of(A="1200 1412 1600"))

    assert exact.high - exact.value == pytest.approx(exact.value * 0.03)
    assert noisy.high - noisy.value > exact.high - exact.value


@pytest.mark.parametrize("slices", [of(A="1000+100k")[:2], of(A="1200 1400 1800")], ids=["two slices", "bent"])
def test_unknown(slices: Sequence[Slice]) -> None:
    """A line through two points says nothing about itself, and a bent line has to be seen in a second run."""
    assert forecast.forecast(slices, 16) is None


@pytest.mark.parametrize(
    "slices, value, is_at_least",
    [
        (of((2, 4, 6, 6), A="1200 1400 1800 1800"), 600 + 200 * 16, True),  # bent in two runs
        (of(Compress={"peak": "1500+10k", "end": "800+150k"}), 800 + 150 * 16, True),
        (of(A="1000+10k", B="100 200 110"), 1160, False),
    ],
)
def test_peak(slices: Sequence[Slice], value: float, *, is_at_least: bool) -> None:
    """A peak is a lower bound where a line bends, or where two lines cross; low operations do no harm."""
    found = peak(slices)

    assert (found.value, found.is_at_least) == (pytest.approx(value), is_at_least)


def run_again(slices: list[Slice], count: int, sizes: Mapping[str, float]) -> list[Slice]:
    """Add a second run with so many layers, in which operations held other sizes at the peak."""
    (first,) = [part for part in slices if part.layers == count]
    points = [Point(operation=name, place=1, peak=size * MIB) for name, size in sizes.items()]
    return [*slices, replace(first, peak=round(max(sizes.values()) * MIB), points=points)]


LATE = of((6, 12, 18), Load="700+20k", Compression="818 828 1212")
"""Gemma 3 in bf16: in the run with 18 layers, garbage was collected late."""
LAYER = 2_500_000
"""The parameters of one of its layers, which takes 10 MB in float32: no layer costs 64 MiB."""


def test_late_garbage() -> None:
    """A slope that no layer can cost is not carried on, even if a second run has it: then the peak is not known."""
    same = run_again(LATE, 18, {"Load": 1060, "Compression": 1212})

    assert forecast.forecast(LATE, 30, LAYER) is None
    assert forecast.find_doubtful(LATE, 30, LAYER) == 18
    assert forecast.forecast(same, 30, LAYER) is None


def test_late_garbage_in_one_of_two_runs() -> None:
    """Where a second run is on the line, the line counts, and the interval has what the first run held above it."""
    slices = run_again(LATE, 18, {"Load": 1060, "Compression": 840})
    known = known_of(slices, 30, LAYER)

    assert known.peak.value == pytest.approx(1300 * MIB)
    assert known.peak.high >= 1212 * MIB
    assert not known.peak.is_at_least


@pytest.mark.parametrize("sizes, doubtful", [("500 1400 700", 4), ("300 600 750", 6), ("1400 500 700", 2)])
def test_off_a_line(sizes: str, doubtful: int) -> None:
    """An operation whose sizes are on no line, and which could hold more than the others, leaves the peak unknown."""
    slices = of(A="1000+10k", B=sizes)

    assert forecast.forecast(slices, 16) is None
    assert forecast.find_doubtful(slices, 16, 0) == doubtful


def test_peak_in_unmarked_time() -> None:
    """Time before, between and after operations has lines: the peak may be there."""
    slices = of((4, 8, 12), floor="300+9k", peak="300+9k")
    for part in slices:
        held = part.peak // MIB
        columns = {"rss": mib(100, 200, 200, held, held), "anon": mib(80, 150, 150, held, held)}
        processes = [process(high_water_mark=part.peak, end_s=None)]
        run = session(columns, marks=marks("Loading 0.5-1"), processes=processes)
        part.points.extend(measure_points(run))
    known = known_of(slices, 30)

    assert (known.operation, known.peak.value) == ("unmarked time after Loading", pytest.approx(570 * MIB))
    assert known.peak.low < known.peak.value < known.peak.high


def test_disturbed() -> None:
    """Where memory was short, upper bound and comfortable amount have what was dropped, carried to all layers."""
    slices = of(A="1000+100k")
    quiet = known_of(slices)
    short = known_of([replace(part, refaults=part.layers * MIB) for part in slices])

    assert short.peak.high - quiet.peak.high == pytest.approx(16 * MIB)
    assert short.comfortable.value - quiet.comfortable.value == pytest.approx(16 * MIB)


@pytest.mark.parametrize("operations, doubtful", [({"Load": "300+10k"}, 6), ({}, None)])
def test_peak_outside_operations(operations: Mapping[str, str], doubtful: int | None) -> None:
    """The peaks are on a line, and yet not known where no operation has them: another one may take over."""
    slices = of(peak="500+50k", **operations)

    assert forecast.forecast(slices, 16) is None
    assert forecast.find_doubtful(slices, 16, 0) == doubtful


def test_once_per_layer() -> None:
    """An operation that is performed once per layer has the most that it held; of floors, each place has a line."""
    slices = of(floor="900 905 910", L={"peak": "2000+0k", "floor": "400+80k"})
    for part in slices:
        part.points.extend(Point(operation="L", place=2 + n, peak=(1900 + 100.0 * n) * MIB) for n in range(part.layers))
    known = known_of(slices)

    assert known.peak.value == pytest.approx((1900 + 100 * 15) * MIB)
    assert known.floor.value == pytest.approx(1680 * MIB)


@pytest.mark.parametrize(
    "floor, operations, low, value, is_at_least",
    [
        ("400+20k", {"A": "400+20k", "B": "500 505 650"}, 670, 720, True),
        ("304 308 312", {"Imports": "300+2k", "Saving": "100+20k"}, 391, 420, False),
        ("56+14k", {"Load": "38+4k"}, 260, 280, True),
        ("406 449 542", {"Load": "400+8k"}, 542, 542, True),
        ("400 410 600", {"Load": "400 410 600"}, 600, 1550, True),
        ("500 560 520", {"Load": "495 515 520"}, 560, 585, False),
    ],
    ids=["off a line", "other operation than in slices", "short operation", "short, off a line", "bent", "falling"],
)
def test_floor(*, floor: str, operations: Mapping[str, str], low: float, value: float, is_at_least: bool) -> None:
    """The floor is the highest line of an operation or of the run; a lower bound where an operation may hold more."""
    slices = of(floor=floor, Peak="2000+1k", **{name: {"floor": cost} for name, cost in operations.items()})
    known = known_of(slices, 16, 1_000_000)

    assert (known.floor.is_at_least, known.peak.is_at_least) == (is_at_least, False)
    assert known.floor.low == pytest.approx(low * MIB, rel=0.01)
    assert known.floor.value == pytest.approx(value * MIB, rel=0.01)


def test_floor_between_samples() -> None:
    """What a high-water mark holds above all files cannot be dropped, though no sample shows it."""
    rises = [Rise(from_s=0.5, to_s=1.0, high_water_mark=350 * MIB)]
    columns = {"rss": mib(100, 300, 200), "anon": mib(60, 200, 100), "file": mib(40, 100, 100)}
    operations = marks("Export 0-1")
    processes = [process(rises=rises, high_water_mark=350 * MIB, end_s=None)]
    (point,) = measure_points(session(columns, marks=operations, processes=processes))

    assert (point.peak, point.floor) == (350 * MIB, 250 * MIB)


@pytest.mark.parametrize("end_s, expected", [(1.4, 500 * MIB), (0.5, None)], ids=["long", "short"])
def test_peak_below_an_earlier_one(end_s: float, expected: float | None) -> None:
    """Where the high-water mark of a process did not rise, samples show the peak of a long operation."""
    own = OwnMemory(high_water_mark=900 * MIB, tree=300 * MIB)
    mark = Mark(name="Saving", start_s=0.45, end_s=end_s, pid=100, own_start=own, own_end=own)
    run = session(
        {"rss": mib(900, 300, 500, 300)}, marks=[mark], processes=[process(high_water_mark=900 * MIB, end_s=None)]
    )

    assert [point.peak for point in measure_points(run) if point.operation == "Saving"] == [expected]


KEPT = Path(__file__).parents[1] / "data/forecasts.json.gz"
"""Slices and true figures of the models and scripts that ``benchmarks.forecast`` holds out."""


class Kept(msgspec.Struct):
    """The slices of a command, and what the whole run held, in bytes."""

    name: str
    peak: float
    floor: float
    result: forecast.Result


def name_of(kept: Kept) -> str:
    """Return the name of a case."""
    return kept.name


@pytest.mark.parametrize("kept", msgspec.json.decode(gzip.decompress(KEPT.read_bytes()), type=list[Kept]), ids=name_of)
def test_kept_recordings(kept: Kept) -> None:
    """A peak is right to 5 %, or not known, or a lower bound, and no figures of the forecast contradict each other."""
    kept.result.finish(None)
    known = kept.result.forecast
    if known is None:
        assert kept.result.doubt is not None
        return
    if known.comfortable.value >= known.peak.value:  # processes that share memory need less than the sum of them
        assert known.floor.value <= known.peak.value <= known.comfortable.value
        assert known.floor.high <= known.peak.high <= known.comfortable.high
    for figure in (known.peak, known.floor, known.comfortable, known.time):
        assert figure.low <= figure.value <= figure.high
        assert figure.low < figure.high
    for limit in (known.floor.low, known.floor.high, known.peak.high, known.comfortable.high):
        verdict = forecast.judged(known, round(limit))
        assert verdict != forecast.YES or limit >= known.comfortable.high
    assert known.peak.low <= kept.peak * 1.01
    assert known.peak.is_at_least or known.peak.value == pytest.approx(kept.peak, rel=0.05)
