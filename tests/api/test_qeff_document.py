"""The examples of QEfficient's document on its profiler, as they stand, with the import changed."""

from __future__ import annotations

import pathlib
import re

import pytest

from tests.api.test_upstream_documents import SEEDS, outcome

pytestmark = pytest.mark.long

DOCUMENT = SEEDS / "003_6cff21cd8b6e8a3a.txt"
IMPORT = "from nncftools import QEffMemoryProfiler\n"
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


def document() -> str:
    """Return the document."""
    if not DOCUMENT.exists():
        pytest.skip("../shared/seeds with the upstream documents is not there")
    return DOCUMENT.read_text(encoding="utf-8")


def printed(before: str, number: int, folder: pathlib.Path, after: str = "") -> str:
    """Run a Python example between other lines, and return what it prints."""
    examples = re.findall(r"^```python\n(.*?)^```$", document(), re.DOTALL | re.MULTILINE)
    example = examples[number].replace("from scripts.memory_profiling import", "from nncftools import")
    (folder / "QEfficient.py").write_text(MODEL)
    result = outcome(f"{before}\n{example}\n{after}", folder)

    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


@pytest.mark.process
def test_quick_start(tmp_path: pathlib.Path) -> None:
    """The report is printed and the picture is written."""
    report = printed("", 0, tmp_path)

    assert report.startswith("QEFFICIENT PERFORMANCE MONITORING REPORT\n")
    assert "Peak during:    Initialization" in report
    assert (tmp_path / "profile.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.process
def test_marks(tmp_path: pathlib.Path) -> None:
    """The marks are kept, and stopping adds the completion."""
    names = printed(IMPORT, 2, tmp_path, "print([name for _, name in profiler.operations])")

    assert names == "['Custom Operation 1', 'Custom Operation 2', 'Completion']\n"


@pytest.mark.process
def test_report(tmp_path: pathlib.Path) -> None:
    """Each line of the document's report is in ours, with other figures."""
    names = ("Model Loading", "Export", "Compilation", "Generation")
    marks = [f"profiler.mark_operation({name!r})" for name in names]
    start = f"{IMPORT}profiler = QEffMemoryProfiler()\nprofiler.start_monitoring()"
    ours = outcome("\n".join([start, *marks, "print(profiler.stop_and_save())"]), tmp_path).stdout
    theirs = document().partition("### Console Report\n```\n")[2].partition("```")[0]

    assert {shape(line) for line in theirs.splitlines()} - {shape(line) for line in ours.splitlines()} == set()


def shape(line: str) -> str:
    """Return a line of a report without its figures, units and names of operations."""
    line = re.sub(r"(Peak during: +).*", r"\1", line.removesuffix(" <- Peak"))
    return re.sub(r"[+-]?\d+(\.\d+)?", "0", re.sub(r"\b[MG]B\b", "MB", re.sub(r"  +", " ", line)))
