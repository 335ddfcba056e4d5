"""The examples of the upstream documents, as they stand, with the import changed."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest

from tests.conftest import HANGING_S

pytestmark = pytest.mark.long

ROOT = pathlib.Path(__file__).parents[2]
SEEDS = ROOT.parent / "shared" / "seeds"
NNCF = SEEDS / "000_78aedfb97078b5b5.txt"
SMALLER = {"1 << 25": "1 << 18", "time.sleep(1)": "time.sleep(0.02)"}
"""The same example, with less memory and shorter pauses."""


def example(number: int) -> str:
    """Return a Python example of NNCF's document that imports our names."""
    if not NNCF.exists():
        pytest.skip("../shared/seeds with the upstream documents is not there")
    blocks = re.findall(r"^```python\n(.*?)^```$", NNCF.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    text = re.sub(r"^ with |^ \)", lambda found: found[0][1:], blocks[number], flags=re.MULTILINE)
    for large, small in SMALLER.items():
        text = text.replace(large, small)
    return text.replace("from memory_monitor import", "from nncftools.memory_monitor import")


def outcome(text: str, folder: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Run an example in a folder."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", text],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGING_S,
    )


def names(*kinds: str) -> list[str]:
    """Return the names of the logs and pictures of NNCF's monitor."""
    return sorted(f"{kind}.{ending}" for kind in kinds for ending in ("png", "txt"))


@pytest.mark.process
def test_module(tmp_path: pathlib.Path) -> None:
    """Three monitors write their logs when the program ends."""
    result = outcome(example(0), tmp_path)

    assert (result.returncode, "Error" in result.stderr) == (0, False)
    assert sorted(path.name for path in (tmp_path / "memory_logs").iterdir()) == names(
        "rss_memory_usage", "system_memory_usage", "system_memory_usage_from-zero"
    )


@pytest.mark.process
def test_context(tmp_path: pathlib.Path) -> None:
    """The context has the maximum by type, and writes its logs."""
    result = outcome(f"{example(1)}\nprint(max_memory_usage)", tmp_path)

    assert (result.returncode, "Error" in result.stderr) == (0, False)
    assert float(result.stdout) >= 0
    assert sorted(path.name for path in (tmp_path / "memory_logs").iterdir()) == names(
        "rss_memory_usage", "rss_memory_usage_from-zero", "system_memory_usage", "system_memory_usage_from-zero"
    )
