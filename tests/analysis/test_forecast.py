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


def peak(slices: Sequence[Slice], layers: int = 16) -> forecast.Estimate:
    """Return the forecast peak in MiB."""
    known = forecast.forecast(slices, layers)
    assert known is not None
    low, value, high = (size / MIB for size in (known.peak.low, known.peak.value, known.peak.high))
    return forecast.Estimate(value, low, high, known.peak.is_at_least)


def test_highest_line() -> None:
    """An operation that is the lower one in all slices wins with all layers; a line through the runs' peaks fails."""
    slices = of(Load="1700+1k", Saving="800+180k")
    known = forecast.forecast(slices, 16)

    assert known is not None
    assert peak(slices).value == pytest.approx(3680)
    assert (known.operation, known.holds_from, known.before) == ("Saving", 5, "Load")
    assert not known.peak.is_at_least


def test_interval() -> None:
    """The interval is at least 3 %, and wider where points are off their line."""
    exact, noisy = peak(of(A="1000+100k")), peak(of(A="1200 1412 1600"))

    assert exact.high - exact.value == pytest.approx(exact.value * 0.03)
    assert noisy.high - noisy.value > exact.high - exact.value


def test_two_slices_are_not_enough() -> None:
    """A line through two points says nothing about itself: that is not known. Unused slices do not count."""
    slices = of(A="1000+100k")
    result = forecast.Result(command=[], model="", layers=16, parameters=0, weights=0)
    result.slices = [*slices[:2], replace(slices[2], unused="exit status 1")]
    result.finish(None)

    assert forecast.forecast(slices[:2], 16) is None
    assert result.forecast is None


def test_bent_line() -> None:
    """A bent line leaves the peak unknown, until a second run of the bent point holds the same: then it is a bound."""
    found = peak(of((2, 4, 6, 6), A="1200 1400 1800 1800"))

    assert forecast.forecast(of(A="1200 1400 1800"), 16) is None
    assert found.value == pytest.approx(600 + 200 * 16)
    assert found.is_at_least


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
    known = forecast.forecast(slices, 30, LAYER)

    assert known is not None
    assert known.peak.value == pytest.approx(1300 * MIB)
    assert known.peak.high >= 1212 * MIB
    assert not known.peak.is_at_least


@pytest.mark.parametrize(
    "sizes, doubtful", [("500 1400 700", 4), ("300 600 750", 6), ("1400 500 700", 2), ("700 1000 980", 4)]
)
def test_off_a_line(sizes: str, doubtful: int) -> None:
    """An operation whose sizes are on no line, and which could hold more than the others, leaves the peak unknown."""
    slices = of(A="1000+10k", B=sizes)

    assert forecast.forecast(slices, 16) is None
    assert forecast.find_doubtful(slices, 16, 0) == doubtful


def test_off_a_line_and_lower() -> None:
    """An operation whose sizes are on no line does no harm where it cannot be much higher than the others."""
    found = peak(of(A="1000+10k", B="100 200 110"))

    assert found.value == pytest.approx(1160)
    assert not found.is_at_least


def test_peak_in_unmarked_time() -> None:
    """Time before, between and after operations has lines: the peak may be there."""
    slices = of((4, 8, 12), floor="300+9k", peak="300+9k")
    for part in slices:
        held = part.peak // MIB
        columns = {"rss": mib(100, 200, 200, held, held), "anon": mib(80, 150, 150, held, held)}
        processes = [process(high_water_mark=part.peak, end_s=None)]
        run = session(columns, marks=marks("Loading 0.5-1"), processes=processes)
        part.points.extend(measure_points(run))
    known = forecast.forecast(slices, 30)

    assert known is not None
    assert (known.operation, known.peak.value) == ("unmarked time after Loading", pytest.approx(570 * MIB))
    assert known.peak.low < known.peak.value < known.peak.high


def test_disturbed() -> None:
    """Where memory was short, the interval has what was dropped, carried to all layers."""
    slices = of(A="1000+100k")
    known = forecast.forecast([*slices[:2], replace(slices[2], refaults=60 * MIB)], 16)

    assert known is not None
    assert known.peak.high - peak(slices).high * MIB == pytest.approx(160 * MIB)


def test_floor_that_is_off() -> None:
    """A floor is a lower bound where an operation whose sizes are on no line may hold more."""
    slices = of(floor="400+20k", A={"peak": "2000+1k", "floor": "400+20k"}, B={"floor": "500 505 650"})
    known = forecast.forecast(slices, 16, 1_000_000)

    assert known is not None
    assert (known.floor.is_at_least, known.peak.is_at_least) == (True, False)


def check_parts(known: forecast.Forecast) -> None:
    """Fail if the figures of a forecast contradict each other."""
    assert known.floor.value <= known.peak.value <= known.comfortable.value
    assert known.floor.high <= known.peak.high <= known.comfortable.high
    for figure in (known.peak, known.floor, known.comfortable, known.time):
        assert figure.low <= figure.value <= figure.high
        assert figure.low < figure.high


def test_end_above_the_peak() -> None:
    """Where an operation's end crosses its peak's line, the truth is the higher of two lines: at least its end."""
    found = peak(of(Compress={"peak": "1500+10k", "end": "800+150k"}))

    assert found.value == pytest.approx(800 + 150 * 16)
    assert found.is_at_least


@pytest.mark.parametrize("is_marked", [True, False])
def test_peak_outside_operations(is_marked: bool) -> None:  # noqa: FBT001 — a case
    """The peaks are on a line, and yet not known where no operation has them: another one may take over."""
    operations = {"Load": "300+10k"} if is_marked else {}
    slices = of(peak="500+50k", **operations)

    assert forecast.forecast(slices, 16) is None
    doubt = forecast.compare_lines(slices, 16).doubt
    assert doubt is not None
    assert doubt.at(16) == pytest.approx(1300 * MIB)
    assert forecast.find_doubtful(slices, 16, 0) == (6 if is_marked else None)


def test_once_per_layer() -> None:
    """An operation that is performed once per layer is one: with the most that it held."""
    slices = of()
    for part in slices:
        part.points.extend(Point(operation="L", place=n + 1, peak=(100 + 10.0 * n) * MIB) for n in range(part.layers))

    assert peak(slices).value == pytest.approx(100 + 10 * 15)


def test_floor_by_operation() -> None:
    """The floor is that of the operation whose line is the highest, though another one holds it in all slices."""
    lines = {"Imports": {"floor": "300+2k"}, "Saving": {"peak": "2000+0k", "floor": "100+20k"}}
    known = forecast.forecast(of(floor="304 308 312", **lines), 40)

    assert known is not None
    assert known.floor.value == pytest.approx(900 * MIB, rel=0.02)


def test_floor_between_samples() -> None:
    """What a high-water mark holds above all files cannot be dropped, though no sample shows it."""
    rises = [Rise(from_s=0.5, to_s=1.0, high_water_mark=350 * MIB)]
    columns = {"rss": mib(100, 300, 200), "anon": mib(60, 200, 100), "file": mib(40, 100, 100)}
    operations = marks("Export 0-1")
    processes = [process(rises=rises, high_water_mark=350 * MIB, end_s=None)]
    (point,) = measure_points(session(columns, marks=operations, processes=processes))

    assert (point.peak, point.floor) == (350 * MIB, 250 * MIB)


def test_floor_of_the_first_of_many() -> None:
    """Of an operation that is performed once per layer, each place has a line: the first may hold the floor."""
    slices = of(floor="890+10k", Inference={"peak": "2000+0k", "floor": "880+10k"})
    for part in slices:
        part.points.extend(Point(operation="Inference", place=2 + place, peak=0.0) for place in range(part.layers))
    known = forecast.forecast(slices, 16)

    assert known is not None
    assert known.floor.value == pytest.approx(1040 * MIB, rel=0.02)


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
        check_parts(known)
    for limit in (known.floor.low, known.floor.high, known.peak.high, known.comfortable.high):
        verdict = forecast.judged(known, round(limit))
        assert verdict != forecast.YES or limit >= known.comfortable.high
    assert known.peak.low <= kept.peak * 1.01
    assert known.peak.is_at_least or known.peak.value == pytest.approx(kept.peak, rel=0.05)
