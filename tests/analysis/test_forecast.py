from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest
from msgspec.structs import replace

from nncftools.analysis import forecast
from nncftools.analysis.forecast import Point, Slice
from nncftools.session.model import Mark, OwnMemory, Rise
from tests.made_up import mib, process, session

MIB = 1 << 20
COUNTS = 2, 4, 6
Cost = Callable[[int], float]


def of(
    counts: Sequence[int] = COUNTS, floor: Cost | None = None, **operations: Cost | Mapping[str, Cost]
) -> list[Slice]:
    """Return slices whose operations hold so many MiB by layers."""

    def levels(cost: Cost | Mapping[str, Cost], count: int) -> dict[str, float]:
        by_what = cost if isinstance(cost, Mapping) else {"peak": cost}
        return {what: one(count) * MIB for what, one in by_what.items()}

    slices = []
    for count in counts:
        points = [Point(operation=name, place=1, **levels(cost, count)) for name, cost in operations.items()]
        sizes = [size for point in points for size in (point.start, point.peak, point.end) if size is not None]
        peak = round(max(sizes, default=100 * MIB))
        held = peak // 2 if floor is None else round(floor(count) * MIB)
        slices.append(
            Slice(
                layers=count,
                session="",
                duration_s=5.0 + count,
                peak=peak,
                floor=held,
                comfortable=held + MIB,
                written=count * MIB,
                points=points,
            )
        )
    return slices


def peak(slices: Sequence[Slice], layers: int = 16) -> forecast.Estimate:
    """Return the forecast peak in MiB."""
    known = forecast.forecast(slices, layers)
    assert known is not None
    low, value, high = (size / MIB for size in (known.peak.low, known.peak.value, known.peak.high))
    return forecast.Estimate(value, low, high, known.peak.is_at_least)


def test_highest_line() -> None:
    """An operation that is the lower one in all slices wins with all layers; a line through the runs' peaks fails."""
    slices = of(Load=lambda k: 1700 + k, Saving=lambda k: 800 + 180 * k)
    known = forecast.forecast(slices, 16)

    assert known is not None
    assert peak(slices).value == pytest.approx(3680)
    assert (known.operation, known.holds_from, known.before) == ("Saving", 5, "Load")
    assert not known.peak.is_at_least


def test_interval() -> None:
    """The interval is at least 3 %, and wider where points are off their line."""
    exact, noisy = peak(of(A=lambda k: 1000 + 100 * k)), peak(of(A=lambda k: 1000 + 100 * k + (12 if k == 4 else 0)))

    assert exact.high - exact.value == pytest.approx(exact.value * 0.03)
    assert noisy.high - noisy.value > exact.high - exact.value


def test_two_slices_are_not_enough() -> None:
    """A line through two points says nothing about itself: that is not known. Unused slices do not count."""
    from msgspec.structs import replace

    slices = of(A=lambda k: 1000 + 100 * k)

    assert forecast.forecast(slices[:2], 16) is None
    assert forecast.forecast([*slices[:2], replace(slices[2], unused="exit status 1")], 16) is None


def test_bent_line() -> None:
    """What is higher in the smallest slice for another reason is forecast by the last two, and as a lower bound."""
    found = peak(of(A=lambda k: max(1200, 600 + 200 * k)))

    assert found.value == pytest.approx(600 + 200 * 16)
    assert found.is_at_least


def test_off_a_line_could_win() -> None:
    """If an operation that is left out might hold more, the forecast is a lower bound."""
    found = peak(of(A=lambda k: 1000 + 10 * k, B=lambda k: {2: 300, 4: 600, 6: 750}[k]))

    assert found.value == pytest.approx(1160)
    assert found.is_at_least


def test_end_above_the_peak() -> None:
    """Where an operation's end crosses its peak's line, the truth is the higher of two lines: at least its end."""
    cost = {"peak": lambda k: 1500 + 10 * k, "end": lambda k: 800 + 150 * k}
    found = peak(of(Compress=cost))

    assert found.value == pytest.approx(800 + 150 * 16)
    assert found.is_at_least


def test_fourth_slice() -> None:
    """With four slices, the three largest are used."""
    found = peak(of((2, 4, 6, 8), A=lambda k: max(1300, 600 + 200 * k)))

    assert found.value == pytest.approx(3800)
    assert not found.is_at_least


def test_without_operations() -> None:
    """A command without marks is forecast by the line through its peaks."""
    from msgspec.structs import replace

    slices = [replace(part, peak=(500 + 50 * part.layers) * MIB) for part in of()]
    known = forecast.forecast(slices, 16)

    assert known is not None
    assert known.peak.value == pytest.approx(1300 * MIB)
    assert known.operation == ""


def test_once_per_layer() -> None:
    """An operation that is performed once per layer is one: with the most that it held."""
    slices = []
    for part in of():
        points = [Point(operation="L", place=n + 1, peak=(100 + 10.0 * n) * MIB) for n in range(part.layers)]
        slices.append(
            Slice(layers=part.layers, session="", duration_s=1, peak=1, floor=1, comfortable=1, points=points)
        )

    assert peak(slices).value == pytest.approx(100 + 10 * 15)


def test_floor_by_operation() -> None:
    """The floor is that of the operation whose line is the highest, though another one holds it in all slices."""
    slices = of(floor=lambda k: max(300 + 2 * k, 100 + 20 * k))
    for place, part in enumerate(slices):
        points = [
            Point(operation="Imports", place=1, floor=(300 + 2 * part.layers) * MIB),
            Point(operation="Saving", place=1, floor=(100 + 20 * part.layers) * MIB),
        ]
        slices[place] = replace(part, points=points)
    known = forecast.forecast(slices, 40)

    assert known is not None
    assert known.floor.value == pytest.approx(900 * MIB, rel=0.02)


def test_floor_between_samples() -> None:
    """What a high-water mark holds above all files cannot be dropped, though no sample shows it."""
    rises = [Rise(from_s=0.5, to_s=1.0, high_water_mark=350 * MIB)]
    columns = {"rss": mib(100, 300, 200), "anon": mib(60, 200, 100), "file": mib(40, 100, 100)}
    marks = [Mark(name="Export", start_s=0.0, end_s=1.0)]
    processes = [process(rises=rises, high_water_mark=350 * MIB, end_s=None)]
    (point,) = forecast.points(session(columns, marks=marks, processes=processes))

    assert (point.peak, point.floor) == (350 * MIB, 250 * MIB)


def test_floor_of_the_first_of_many() -> None:
    """Of an operation that is performed once per layer, each place has a line: the first may hold the floor."""
    slices = []
    for part in of(floor=lambda _: 950):
        first = Point(operation="Inference", place=1, floor=(880 + 10 * part.layers) * MIB)
        others = [Point(operation="Inference", place=2 + place, floor=None) for place in range(part.layers)]
        slices.append(replace(part, points=[first, *others]))
    known = forecast.forecast(slices, 16)

    assert known is not None
    assert known.floor.value == pytest.approx(1040 * MIB, rel=0.02)


def test_written_and_time() -> None:
    """Bytes written are a line; a time is a range around one."""
    known = forecast.forecast(of(A=lambda k: 1000 + k), 16)

    assert known is not None
    assert known.written is not None
    assert known.written.value == pytest.approx(16 * MIB)
    assert known.time.low < 21 < known.time.high
    assert known.disk is None


def test_missed() -> None:
    """The share by which the largest slice is wrong when forecast by the others."""
    assert forecast.missed(of(A=lambda k: 1000 + 100 * k)) == pytest.approx(0)
    assert forecast.missed(of(A=lambda k: max(1600, 400 * k))) == pytest.approx(800 / 2400)


@pytest.mark.parametrize(("end_s", "expected"), [(1.4, 500 * MIB), (0.5, None)], ids=["long", "short"])
def test_peak_below_an_earlier_one(end_s: float, expected: float | None) -> None:
    """Where the high-water mark of a process did not rise, samples show the peak of a long operation."""
    own = OwnMemory(high_water_mark=900 * MIB, tree=300 * MIB)
    mark = Mark(name="Saving", start_s=0.45, end_s=end_s, pid=100, own_start=own, own_end=own)
    run = session(
        {"rss": mib(900, 300, 500, 300)}, marks=[mark], processes=[process(high_water_mark=900 * MIB, end_s=None)]
    )

    assert [point.peak for point in forecast.points(run)] == [expected]
