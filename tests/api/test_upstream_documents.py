"""The examples of the upstream documents, as they stand, with the import changed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import HANGING_S

pytestmark = [pytest.mark.long, pytest.mark.process]

ROOT = Path(__file__).parents[2]
SEEDS = ROOT.parent / "shared" / "seeds"
NNCF, QEFF = "000_78aedfb97078b5b5.txt", "003_6cff21cd8b6e8a3a.txt"
CHANGED = {
    "from memory_monitor import": "from nncftools.memory_monitor import",
    "from scripts.memory_profiling import": "from nncftools import",
    "1 << 25": "1 << 18",
    "time.sleep(1)": "time.sleep(0.02)",
}
"""Our names, with less memory and shorter pauses."""
MODEL = """
class QEFFAutoModelForCausalLM:
    @classmethod
    def from_pretrained(cls, name):
        return cls()
    def export(self): return bytearray(1 << 24)
    def compile(self, **options): return options
    def generate(self, prompts): return prompts
"""
"""Stands in for the class of QEfficient, which installs only with its hardware's tools."""
START = """from nncftools import QEffMemoryProfiler
profiler = QEffMemoryProfiler()
profiler.start_monitoring()
"""
LOGS = "rss_memory_usage rss_memory_usage_from-zero system_memory_usage system_memory_usage_from-zero"


def document(name: str) -> str:
    """Return an upstream document."""
    if not (SEEDS / name).exists():
        pytest.skip("../shared/seeds with the upstream documents is not there")
    return (SEEDS / name).read_text(encoding="utf-8")


def example(name: str, number: int) -> str:
    """Return a Python example of a document that imports our names."""
    blocks = re.findall(r"^```python\n(.*?)^```$", document(name), re.DOTALL | re.MULTILINE)
    text = re.sub(r"^ with |^ \)", lambda found: found[0][1:], blocks[number], flags=re.MULTILINE)
    for old, new in CHANGED.items():
        text = text.replace(old, new)
    return text


def printed(text: str, folder: Path) -> str:
    """Run a program in a folder, without an error; return its output."""
    (folder / "QEfficient.py").write_text(MODEL)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", text]
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=HANGING_S, check=False
    )
    assert (done.returncode, "Error" in done.stderr) == (0, False)
    return done.stdout


@pytest.mark.parametrize(
    "name, number, end, expected",
    [
        (NNCF, 0, "", ""),
        (NNCF, 1, "print(max_memory_usage >= 0)", "True\n"),
        (QEFF, 0, "", r"QEFFICIENT PERFORMANCE MONITORING REPORT\n(.*\n)*.*Peak during:    Initialization\n(.*\n)*"),
        (
            QEFF,
            2,
            "print([name for _, name in profiler.operations])",
            r"\['Custom Operation 1', 'Custom Operation 2', 'Completion'\]\n",
        ),
    ],
    ids=["module", "context", "quick start", "marks"],
)
def test_example(tmp_path: Path, name: str, number: int, end: str, expected: str) -> None:
    """Examples print what they should, and write the logs and pictures of NNCF's monitor, or the profiler's picture."""
    start = START.partition("\n")[0] if name == QEFF else ""
    found = printed(f"{start}\n{example(name, number)}\n{end}", tmp_path)
    logs = {path.stem for path in tmp_path.glob("memory_logs/*.txt")}

    assert re.fullmatch(expected, found)
    assert {path.stem for path in tmp_path.glob("memory_logs/*.png")} == logs
    assert len(logs) == (0 if name == QEFF else 3 + number)
    assert logs <= set(LOGS.split())
    assert (number, name) != (0, QEFF) or (tmp_path / "profile.png").read_bytes().startswith(b"\x89PNG")


def test_report(tmp_path: Path) -> None:
    """Each line of the report in QEfficient's document is in ours, with other figures."""
    marks = "".join(f"profiler.mark_operation({name!r})\n" for name in ("Model Loading", "Export", "Generation"))
    theirs = document(QEFF).partition("### Console Report\n```\n")[2].partition("```")[0]
    ours = printed(f"{START}{marks}profiler.mark_operation('Compilation')\nprint(profiler.stop_and_save())", tmp_path)

    assert {shape(line) for line in theirs.splitlines()} - {shape(line) for line in ours.splitlines()} == set()


def shape(line: str) -> str:
    """Return a line of a report without its figures, units and names of operations."""
    line = re.sub(r"(Peak during: +).*", r"\1", line.removesuffix(" <- Peak"))
    return re.sub(r"≈?[+-]?\d+(\.\d+)?", "0", re.sub(r"\b[MG]B\b", "MB", re.sub(r"  +", " ", line)))
