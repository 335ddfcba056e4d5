from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections import Counter

import pytest

from benchmarks.owner_programs.certainty import living_in, rises
from benchmarks.owner_programs.generator import FEATURES, generate
from benchmarks.owner_programs.judge import judge
from benchmarks.owner_programs.recording import Place, own_place, truth_of
from tests.made_up import MIB

_LONG = (1, 5, 12)
_SHARE = 0.1
_LOG = """\
takes 1 100 10 1.0 0 main.py:9:<module>;steps.py:2:load
lives 1 200 60 1.0 52428800
takes 1 300 60 1.1 0 main.py:10:<module>;steps.py:6:convert
lives 1 400 110 1.1 52428800
ends 1 500 60 1.0 0
takes 1 600 60 1.2 0 main.py:11:<module>
lives 1 700 80 1.2 -1
ends 1 900 80 1.2 0
"""
"""``w = load(); w = convert(w)``, each 50 MiB, and an import of 20 MiB; RSS in MiB."""


def _logged(folder: pathlib.Path) -> pathlib.Path:
    """Write the log of a program."""
    lines = []
    for line in _LOG.splitlines():
        event, process, at_ns, rss, *rest = line.split(" ")
        lines.append("\t".join([event, process, at_ns, str(int(rss) * MIB), *rest, *[""] * (3 - len(rest))]))
    file = folder / "truth.log"
    file.write_text("\n".join(lines) + "\n", "utf-8")
    return file


def test_same_program() -> None:
    """A number always means the same program, and each another one."""
    programs = [generate(seed).files["main.py"] for seed in range(50)]

    assert [generate(seed).files["main.py"] for seed in range(50)] == programs
    assert len(set(programs)) == 50


@pytest.mark.parametrize("first", [1, 1001])
def test_features(first: int) -> None:
    """Each feature occurs in at least 20 of 100 programs, and each file is Python."""
    programs = [generate(seed) for seed in range(first, first + 100)]
    counts = Counter(feature for program in programs for feature in program.features)

    assert set(counts) == set(FEATURES)
    assert min(counts.values()) >= 20
    for program in programs:
        for name, text in program.files.items():
            compile(text, name, "exec")


@pytest.mark.parametrize(
    ("window", "held"),
    [
        ((750, 800), {"convert": (50, 50), "<module>": (20, 20)}),
        # the end of a call: both live; its temporary memory may be 20 MiB
        ((350, 550), {"load": (50, 50), "convert": (50, 70)}),
        ((310, 350), {"load": (50, 50), "convert": (25, 70)}),
    ],
)
def test_held(window: tuple[int, int], held: dict[str, tuple[float, float]], tmp_path: pathlib.Path) -> None:
    """What was freed is not held; within a time, the moment counts at which most is held."""
    living = living_in(truth_of(_logged(tmp_path)), window, 130 * MIB)

    assert {stack[-1].function: (size / MIB, most / MIB) for stack, size, most in living} == held


def test_rises(tmp_path: pathlib.Path) -> None:
    """By the rule for freed memory, what rose last is gone."""
    risen = rises(truth_of(_logged(tmp_path)), (750, 800))

    assert {stack[-1].function: size / MIB for stack, size, _ in risen} == {"load": 50, "<module>": 20}


@pytest.mark.parametrize(
    ("file", "own"),
    [("/p/steps.py", True), ("main.py", True), ("/p/truth.py", False), ("/lib/steps.py", False), ("<frozen x>", False)],
)
def test_own_place(file: str, own: bool) -> None:  # noqa: FBT001
    """Only files of the program itself are own code."""
    place = own_place(file, "load", 3, pathlib.Path("/p"))

    assert place == (Place(pathlib.Path(file).name, 3, "load") if own else None)


@pytest.mark.process
@pytest.mark.long
@pytest.mark.parametrize("seed", _LONG)
def test_truth(seed: int, tmp_path: pathlib.Path) -> None:
    """What a program logs sums to what its processes hold."""
    generate(seed).write(tmp_path)
    log = tmp_path / "truth.log"
    environment = {**os.environ, "OWNERS_TRUTH": str(log)}
    subprocess.run([sys.executable, "main.py"], cwd=tmp_path, env=environment, check=True)
    truth = truth_of(log)

    for process, readings in truth.by_process().items():
        own = [taken for token, taken in truth.taken.items() if token.startswith(f"{process}.")]
        stands = {taken.until_ns for taken in own}
        alone = [reading for reading in readings if reading.at_ns in stands and len(reading.taking) == 1]
        highest = max(alone, key=lambda reading: reading.rss)
        held = sum(taken.size for taken in own if taken.until_ns <= highest.at_ns < taken.ends_ns)
        assert held == pytest.approx(highest.rss - readings[0].rss, rel=_SHARE, abs=8 * MIB)


@pytest.mark.process
@pytest.mark.long
@pytest.mark.parametrize("seed", _LONG)
def test_judged(seed: int, tmp_path: pathlib.Path) -> None:
    """The largest row of a real recording names own code that took memory, and sizes are judged."""
    judged = judge(seed, tmp_path)

    assert judged.rows
    assert judged.rows[0].is_right
    assert judged.sizes is not None
    assert any(size.is_large and size.is_held for size in judged.sizes.functions)
