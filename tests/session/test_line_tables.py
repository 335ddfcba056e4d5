"""The line tables of code objects, as the helper's log has them."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import pathlib
import sys
import types
from collections.abc import Iterator

import pytest

from nncftools.session.snapshots import LineTable

VERSION = sys.version_info.minor


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a code object and all in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


@pytest.mark.parametrize("of", [inspect, dataclasses, argparse])
def test_lines(of: types.ModuleType) -> None:
    """The line of each instruction is that of Python itself."""
    source = pathlib.Path(of.__file__ or "")
    wrong, count = [], 0
    for code in codes(compile(source.read_text(encoding="utf-8"), str(source), "exec")):
        table = LineTable(VERSION, code.co_linetable)
        found = [(start, line) for start, _, line in code.co_lines() if line is not None]
        for start, line in [*found, *reversed(found)]:  # backwards, too: decoding goes on where it ended
            count += 1
            if table.line_at(code.co_firstlineno, start) != line:
                wrong.append((code.co_name, start, line))

    assert wrong == []
    assert count > 1000


def test_numbers_without_end() -> None:
    """A step of a damaged table that never ends is no number of a million digits."""
    assert abs(LineTable(13, b"\xf0" + b"\x7f" * 100_000).line_at(1, 0)) < 1 << 40


@pytest.mark.parametrize("version", range(8, 14))
def test_damaged_tables(version: int) -> None:
    """Any bytes give some line."""
    for table in b"", b"\xff", b"\x00\x80\x81", bytes(range(256)):
        assert isinstance(LineTable(version, table).line_at(7, 1000), int)
