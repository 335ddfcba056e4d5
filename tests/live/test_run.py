from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nncftools.live.run import History, LiveOperations
from nncftools.reading_marks.entries import Entry
from tests.made_up import cases


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


@pytest.mark.parametrize("seconds", [1, 10, 300])
def test_points(seconds: int) -> None:
    """However long a run is, no peak is lost or moved; the points are few and in order, and rates stay the same."""
    of = history(seconds)
    time_s, values = of.points("rss")
    moments, totals = of.totals(["cpu_user"])

    assert (values.min(), values.max()) == (5.0, 99.0)
    assert time_s[values.argmax()] == pytest.approx(seconds / 2, abs=2 * of.width_s)
    assert len(time_s) <= 2 * 64
    assert list(time_s) == sorted(time_s)
    assert totals[1:] == pytest.approx(2 * moments[1:])


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


@pytest.mark.parametrize(
    "interval_s, rows, points",
    [(1.0, [[0.0, np.nan], [1.0, 7.0], [2.0, np.nan]], [7.0, 7.0]), (0.1, [[0.0, 1.0], [1.0, 1.0]], [1.0] * 4)],
    ids=["metric that most samples do not hold", "neighbours that the recorder has merged"],
)
def test_no_gaps(interval_s: float, rows: list[list[float]], points: list[float]) -> None:
    """Where a metric has an interval of its own, a line joins the values."""
    of = History(["pss"], interval_s)
    of.add(np.array(rows))

    assert of.points("pss")[1].tolist() == points


def test_metric_that_was_not_recorded() -> None:
    """There are neither points nor totals of it."""
    of = history(1)

    assert len(of.points("swap")[0]) == 0
    assert len(of.totals(["read_bytes"])[0]) == 0


def live(text: str, **fields: Any) -> LiveOperations:  # noqa: ANN401 — any field of a line
    """Return the operations of lines such as ``1 begin Export 7, 3 end 7, 4 mark step``, with numbers of operations."""
    operations = LiveOperations()
    for line in text.split(", "):
        at_s, event, *words = line.split()
        found: dict[str, Any] = {"start_s": float(at_s)}
        if event != "end":
            found["name"] = words.pop(0)
        if event != "mark":
            found |= {"event": event, "op": int(words.pop(0)), "pid": 1, "tid": 1}
        if words:
            found["within"] = int(words[0])
        operations.take(Entry(**{**found, **fields}))
    return operations


@pytest.mark.parametrize(
    "text, spans",
    cases("""
of those inside, the open ones are named \
| 1 begin Export 1, 2 begin Tracing 2, 3 end 2, 4 begin Saving 3 \
| Export 1–None 0, Saving 4–None 1
a mark from a shell script ends the one before | 1 mark download, 5 mark convert | download 1–5 0, convert 5–None 0
parallel tasks end by themselves \
| 1 begin Task1 1 0, 2 begin Task2 2 0, 5 end 1, 6 begin Inside 3 2 \
| Task1 1–5 0, Task2 2–None 0, Inside 6–None 1
what began before the recording is unknown | 1 end 9 |
"""),
)
def test_operations(text: str, spans: str) -> None:
    """Operations have a name, a beginning, an end and a depth."""
    assert written(live(text)) == spans


def written(operations: LiveOperations) -> str:
    """Return operations as text."""
    spans = operations.spans()
    texts = (f"{span.name} {span.start_s:g}–{span.end_s and round(span.end_s)} {span.depth}" for span in spans)
    return ", ".join(texts)


def test_marks() -> None:
    """A mark ends with the operation around it; lines of a progress bar are one operation."""
    assert written(live("1 begin Export 1, 2 mark step, 4 end 1", pid=1, tid=1)) == "Export 1–4 0"
    assert written(live("0 mark a, 1 mark a, 2 mark b, 3 mark b", source="output")) == "a 0–2 0, b 2–None 0"


@pytest.mark.long
def test_memory_stays_flat() -> None:
    """After ten thousand operations no more than a few hundred are held."""
    steps = (f"{number} begin Step{number % 3} 1, {number + 0.5} end 1" for number in range(10_000))

    assert len(list(live(", ".join(steps)).spans())) <= 400
