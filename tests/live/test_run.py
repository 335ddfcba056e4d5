from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nncftools.live.run import History, LiveOperations
from nncftools.reading_marks.entries import Entry


def history(seconds: int, buckets: int = 64) -> History:
    """Return one hundred samples a second of a level and a counter, with one spike, taken piece by piece."""
    found = History(["rss", "cpu_user"], 0.01, buckets)
    time_s = np.arange(seconds * 100) / 100
    level = np.full(len(time_s), 5.0)
    level[len(level) // 2] = 99.0
    rows = np.stack([time_s, level, time_s * 2], axis=1)
    for begin in range(0, len(time_s), 37):
        found.add(rows[begin : begin + 37])
    return found


@pytest.mark.parametrize("seconds", [1, 10, 1000])
def test_no_peak_is_lost(seconds: int) -> None:
    """However long the run is, the largest of all samples is among the points, and the smallest, too."""
    _, values = history(seconds).points("rss")

    assert (values.min(), values.max()) == (5.0, 99.0)


@pytest.mark.parametrize("seconds", [10, 1000])
def test_peak_stays_in_its_place(seconds: int) -> None:
    """A peak is drawn where it was, to the width of a bucket."""
    of = history(seconds)
    time_s, values = of.points("rss")

    assert time_s[values.argmax()] == pytest.approx(seconds / 2, abs=2 * of.width_s)


def test_number_of_points_is_bounded() -> None:
    """However long a run is, there are two points for each bucket at most, and one for each gap."""
    time_s, _ = history(1000).points("rss")

    assert len(time_s) <= 2 * 64


def test_points_are_in_order() -> None:
    """Time never goes back."""
    time_s, _ = history(100).points("rss")

    assert list(time_s) == sorted(time_s)


def test_seldom_values() -> None:
    """A figure that most samples do not hold has its own interval: a line joins its values."""
    of = History(["pss"], 1.0)
    of.add(np.array([[0.0, np.nan], [1.0, 7.0], [2.0, np.nan]]))
    _, values = of.points("pss")

    assert values.tolist() == [7.0, 7.0]


@pytest.mark.parametrize("interval_s", [0.1, 2.0])
def test_gaps(interval_s: float) -> None:
    """Where samples are missing or do not hold a metric that others hold, nothing is known."""
    of = History(["rss"], interval_s)
    time_s = np.delete(np.arange(100) * interval_s, np.arange(20, 30))
    values = np.ones((90, 1))
    values[60:70] = np.nan
    of.add(np.hstack([time_s[:, np.newaxis], values]))
    moments, found = of.points("rss")
    unknown = moments[np.isnan(found)] / interval_s

    assert sum(unknown < 50) == 1
    assert 19 <= unknown[0] <= 30
    assert sum(unknown > 50) == 20


def test_merged_samples_are_no_gaps() -> None:
    """A recorder merges neighbours in a long recording: samples are further apart then."""
    of = History(["rss"], 0.1)
    of.add(np.stack([np.arange(500.0), np.ones(500)], axis=1))

    assert not np.isnan(of.points("rss")[1]).any()


@pytest.mark.parametrize("seconds", [1, 10, 1000])
def test_rates(seconds: int) -> None:
    """A counter that rises steadily has the same rate everywhere, also after buckets were merged."""
    of = history(seconds)
    moments, totals = of.totals(["cpu_user"])

    assert totals[1:] == pytest.approx(2 * moments[1:])


def test_metric_that_was_not_recorded() -> None:
    """There are neither points nor totals of it."""
    of = history(1)

    assert len(of.points("swap")[0]) == 0
    assert len(of.totals(["read_bytes"])[0]) == 0
    assert len(of.totals([])[0]) == 0


def begin(name: str, at_s: float, op: int, pid: int = 1, **more: Any) -> Entry:  # noqa: ANN401 — any field of a line
    """Return the line with which an operation begins."""
    return Entry(name=name, start_s=at_s, event="begin", op=op, pid=pid, tid=pid, **more)


def end(at_s: float, op: int, pid: int = 1) -> Entry:
    """Return the line with which it ends."""
    return Entry(start_s=at_s, event="end", op=op, pid=pid, tid=pid)


def moment(name: str, at_s: float, **more: Any) -> Entry:  # noqa: ANN401 — the same
    """Return the line of a mark that the next one ends."""
    return Entry(name=name, start_s=at_s, **more)


def live(*entries: Entry) -> LiveOperations:
    """Return the operations of these lines."""
    operations = LiveOperations()
    for entry in entries:
        operations.take(entry)
    return operations


def spans(operations: LiveOperations) -> list[tuple[str, float, float | None]]:
    """Return the outermost operations."""
    return [(span.name, span.start_s, span.end_s) for span in operations.spans() if not span.depth]


def test_inner_operations_are_not_outermost() -> None:
    """The outermost operations are drawn; of those inside, the open ones are named."""
    operations = live(begin("Export", 1, 1), begin("Tracing", 2, 2), end(3, 2), begin("Saving", 4, 3))

    assert spans(operations) == [("Export", 1, None)]
    assert [span.name for span in operations.spans()] == ["Export", "Saving"]


def test_moments_end_each_other() -> None:
    """A mark from a shell script ends the one before."""
    operations = live(moment("download", 1), moment("convert", 5))

    assert spans(operations) == [("download", 1, 5), ("convert", 5, None)]


def test_end_of_an_outer_operation_ends_what_is_inside() -> None:
    """What was never ended ends with what it is inside of."""
    operations = live(begin("Export", 1, 1), moment("step", 2, pid=1, tid=1), end(4, 1))

    assert [span.end_s for span in operations.spans()] == [4]


def test_repeated_line_of_output() -> None:
    """Lines of a progress bar are one operation."""
    operations = live(*(moment(name, at_s, source="output") for at_s, name in enumerate("aabb")))

    assert spans(operations) == [("a", 0, 2), ("b", 2, None)]


def test_parallel_operations_are_outermost() -> None:
    """Operations of parallel tasks are drawn beside each other, and each ends by itself."""
    tasks = [begin(f"Task {op}", op, op, within=0) for op in (1, 2)]

    assert spans(live(*tasks, end(5, 1), begin("Inside", 6, 3, within=2))) == [("Task 1", 1, 5), ("Task 2", 2, None)]


def test_process_that_ended_takes_its_operations_along() -> None:
    """An operation ends with its process at the latest."""
    operations = live(begin("Export", 1, 1, pid=7))
    operations.end_process(7, 3)

    assert spans(operations) == [("Export", 1, 3)]


def test_ends_without_a_beginning_are_left_out() -> None:
    """What began before the recording is unknown."""
    assert spans(live(end(1, 9))) == []


@pytest.mark.long
def test_memory_stays_flat() -> None:
    """After ten thousand operations no more than a few hundred are held."""
    operations = LiveOperations()
    for number in range(10_000):
        operations.take(begin(f"Step {number % 3}", number, 1))
        operations.take(end(number + 0.5, 1))

    assert len(spans(operations)) <= 400
