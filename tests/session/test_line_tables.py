"""The line tables of code objects, as the helper's log has them."""

from __future__ import annotations

import sys

import pytest

from nncftools.session.snapshots import LineTable

VERSION = sys.version_info.minor


def test_numbers_without_end() -> None:
    """A step of a damaged table that never ends is no number of a million digits."""
    assert abs(LineTable(13, b"\xf0" + b"\x7f" * 100_000).line_at(1, 0)) < 1 << 40


@pytest.mark.parametrize("version", range(8, 14))
def test_damaged_tables(version: int) -> None:
    """Any bytes give some line."""
    for table in b"", b"\xff", b"\x00\x80\x81", bytes(range(256)):
        assert isinstance(LineTable(version, table).line_at(7, 1000), int)
