"""Tests of the rules that the helper and the analysis of its log share."""

from __future__ import annotations

import pytest

from nncftools.snapshot_rules import is_waiting, subtract_ranges


@pytest.mark.parametrize(
    "file, expected",
    [
        ("/usr/lib/python3.11/threading.py", True),
        ("/usr/lib/python3.11/concurrent/futures/thread.py", True),
        ("/usr/lib/python3.11/site-packages/zmq/threading.py", False),
        ("/home/me/thread_pool.py", False),
        ("", False),
    ],
)
def test_is_waiting(file: str, expected: bool) -> None:  # noqa: FBT001 — a table
    """Files of the standard library count, files of packages with the same name do not."""
    assert is_waiting(file) is expected


@pytest.mark.parametrize(
    "ranges, others, expected",
    [
        ([(0, 10)], [], [(0, 10)]),
        ([(0, 10)], [(0, 10)], []),
        ([(0, 10)], [(2, 4), (6, 20)], [(0, 2), (4, 6)]),
        ([(0, 4), (6, 9)], [(3, 7)], [(0, 3), (7, 9)]),
        ([(5, 6)], [(0, 1), (8, 9)], [(5, 6)]),
        ([], [(0, 1)], []),
    ],
)
def test_subtract_ranges(
    ranges: list[tuple[int, int]], others: list[tuple[int, int]], expected: list[tuple[int, int]]
) -> None:
    """What is left of ranges without others."""
    assert subtract_ranges(ranges, others) == expected
