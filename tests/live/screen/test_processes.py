from __future__ import annotations

import pytest

from nncftools.live.figures import Order, ShownProcess, ViewSettings
from nncftools.live.processes import chosen, process_rows
from nncftools.live.run import LiveProcess
from nncftools.render.canvas import Medium, length
from tests.live.made_up import MIB

SEEN = [
    ShownProcess(0, LiveProcess(100, "python3", command=["python3", "/opt/train.py", "--rank", "0"]), 300 * MIB, 0.5),
    ShownProcess(1, LiveProcess(101, "python3", command=["python3", "/opt/train.py", "--rank", "1"]), 100 * MIB, 1.934),
    ShownProcess(2, LiveProcess(102, "sh", command=["sh", "-c", "tee log"]), 2 * MIB, None),
]


def shown(width: int = 80, seen: list[ShownProcess] = SEEN) -> list[str]:
    """Return the rows of processes as text."""
    return ["".join(part.text for part in row) for row in process_rows(seen, seen, Medium(), width)]


def test_what_a_row_tells() -> None:
    """PID, what tells the command apart, CPU and RSS with their units, and a bar of the share of all memory."""
    first, second, third = shown()

    assert first.split() == ["100", "train.py", "--rank", "0", "0.50", "cores", "300.0", "MiB", "━" * 12 + "─" * 4]
    assert second.split()[1:7] == ["train.py", "--rank", "1", "1.93", "cores", "100.0"]
    assert third.split() == ["102", "sh", "-c", "tee", "log", "2.0", "MiB", "─" * 16]


@pytest.mark.parametrize("width", [30, 40, 56, 80, 200])
def test_width(width: int) -> None:
    """Rows have the width that there is."""
    assert {length(row) for row in process_rows(SEEN, SEEN, Medium(), width)} == {width}


def test_no_column_without_figures() -> None:
    """Where CPU is unknown for all, as in a replay, there is no column for it."""
    unknown = [one._replace(cpu=None) for one in SEEN]

    assert not any("%" in line for line in shown(seen=unknown))


@pytest.mark.parametrize(
    ("order", "expected"),
    [(Order.MEMORY, [0, 1, 2]), (Order.CPU, [1, 0, 2]), (Order.AGE, [0, 1, 2]), (Order.NAME, [2, 0, 1])],
)
def test_order(order: Order, expected: list[int]) -> None:
    """Processes are sorted by memory, CPU, age or name."""
    assert [one.number for one in chosen(SEEN[::-1], ViewSettings(order=order))] == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("RANK 1", [1]), ("102", [2]), ("train", [0, 1]), ("opt", []), ("python3", [0, 1])]
)
def test_filter(text: str, expected: list[int]) -> None:
    """The filter is looked for in commands and PIDs, in any case."""
    assert [one.number for one in chosen(SEEN, ViewSettings(filter=text))] == expected
