from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.limits.deaths import NEED_ROOT, ROWS, judged
from tests.memory_group import IS_POSSIBLE

pytestmark = [pytest.mark.process, pytest.mark.long]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=pytest.mark.skipif(
                name in NEED_ROOT and not IS_POSSIBLE, reason="only root makes control groups and mounts disks"
            ),
        )
        for name in ROWS
    ],
)
def test_verdict(name: str, tmp_path: Path) -> None:
    """The verdict on a real death names its cause, and is as sure as the evidence allows."""
    said, is_right = judged(ROWS[name], tmp_path)

    assert is_right, said
