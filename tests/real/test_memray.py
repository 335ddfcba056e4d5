"""Functions of a real export hold what memray says, which logs each allocation."""

from __future__ import annotations

import pathlib

import pytest

from benchmarks.owner_programs.by_memray import judge_export
from benchmarks.owner_programs.generator import MIB
from tests.real.conftest import written_model

pytestmark = pytest.mark.real
_TRACE = (" trace_module", " _check_trace")
_KEPT = 40 * MIB
"""What the allocator may have kept of freed memory."""


def test_export(
    real_environment: dict[str, str], tmp_path: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No function holds more than is said, within 10 % or 20 MiB; what is certain of the trace is not much above it.

    Memory that was freed and that the allocator kept is in RSS, and not in memray's figures.
    """
    model = written_model("deep", real_environment, tmp_path_factory)

    _, *functions = judge_export(model, "fp32", real_environment, tmp_path)

    trace = [function for function in functions if function.label.endswith(_TRACE)]
    assert len(trace) == len(_TRACE)
    assert min(function.held for function in trace) >= 80 * MIB
    assert [function for function in functions if function.held > function.said and not function.is_close] == []
    assert [function for function in trace if function.certain > function.held + _KEPT] == []
