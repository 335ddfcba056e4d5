from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import HANGING_S

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/python-and-pytest.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n((?:from|import) .*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def scaled_down(example: str) -> str:
    """Return an example with small arrays and short pauses."""
    return example.replace("1 << 25", "1 << 18").replace("time.sleep(1)", "time.sleep(0.02)")


@pytest.mark.process
@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example_runs_as_it_stands(tmp_path: Path, number: int) -> None:
    """Every Python example of the page runs, prints only logs to standard error, and writes its files."""
    result = subprocess.run(
        [sys.executable, "-c", scaled_down(EXAMPLES[number])],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGING_S,
    )

    assert (result.returncode, result.stderr) == (0, "")
    assert list(tmp_path.iterdir()) != []


def test_there_are_examples() -> None:
    """docs/python-and-pytest.md shows the monitor, the context, both profilers."""
    names = ("MemoryMonitor(", "memory_monitor_context(", "QEffMemoryProfiler(", "Profiler()")

    assert [name for name in names if not any(name in example for example in EXAMPLES)] == []
