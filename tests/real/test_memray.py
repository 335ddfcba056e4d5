"""Functions of a real export hold what memray says, which logs each allocation."""

from __future__ import annotations

import pathlib

import pytest

from benchmarks.owner_programs.by_memray import judge_export
from benchmarks.owner_programs.generator import MIB
from tests.real.conftest import written_model

pytestmark = pytest.mark.real


def test_export(
    real_environment: dict[str, str], tmp_path: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The functions that hold most, without imports, are right within 10 % or 20 MiB."""
    model = written_model("deep", real_environment, tmp_path_factory)

    _, *functions = judge_export(model, "fp32", real_environment, tmp_path)

    assert max(function.held for function in functions) >= 100 * MIB
    assert [function for function in functions if not function.is_close] == []
