from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import corpus, outputs
from tests.fuzz.corpus import Sample

SAMPLES = {sample.name: sample for sample in corpus.samples()}
DRAWN = {"measured.csv"}
"""Its picture is golden, too, and takes 1 s."""


def write(sample: Sample, folder: Path) -> Path:
    """Write a sample with what is next to it; return the file to open."""
    for name, content in {**sample.beside, sample.name: sample.content}.items():
        (folder / name).write_bytes(content)
    return folder / (sample.opened or sample.name)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name in DRAWN else []) for name in SAMPLES]
)
def test_whole_files_are_read(tmp_path: Path, name: str) -> None:
    """Undamaged, each file of the corpus is read: damage reaches what comes after the first check."""
    sample = SAMPLES[name]
    write(sample, tmp_path)

    assert outputs.read_and_show(sample, tmp_path, "", {"text", "save"})


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["everything.json", "whole.journal.jsonl", "whole.marks.jsonl", "whole.snapshots.jsonl"]
)
@pytest.mark.parametrize("slow", outputs.SLOW)
def test_whole_files_are_shown(tmp_path: Path, name: str, slow: str) -> None:
    """Undamaged files that hold all there is go to every output."""
    sample = SAMPLES[name]
    write(sample, tmp_path)

    assert outputs.read_and_show(sample, tmp_path, slow)
