"""What the tree held at a mark: what the process read of itself and its descendants, and the sampler's lines."""

from __future__ import annotations

import io
import time
from typing import Any

import pytest

from nncftools.analysis.session import Session
from nncftools.analysis.summary import rss_error
from nncftools.reading_marks.collecting import TreeReader
from nncftools.reading_marks.entries import Entry
from nncftools.session.model import HeldLines, Host, OwnMemory, Process
from nncftools.session.recording import session_from
from tests.conftest import HANGING_S
from tests.made_up import END, MIB, cases, journal, process, session

OWN, CHILD = 100, 101
ALONE = Entry(rss=50 * MIB, descendants=[])


def held(text: str) -> dict[str, Any]:
    """Return a line of the sampler: ``0.2-0.3 1/400/90`` has the sizes of process 1, in MiB, from 0.2 s to 0.3 s."""
    span, *entries = text.split()
    from_s, to_s = map(float, span.split("-"))
    rss = []
    for entry in entries:
        number, *sizes = map(int, entry.split("/"))
        rss.append([number, *(size * MIB for size in sizes)])
    return {"from_s": from_s, "to_s": to_s, "rss": rss}


def member(text: str) -> Process:
    """Return a process: ``2 parent=0 start_s=0.4`` is process 2."""
    number, *words = text.split()
    fields: dict[str, Any] = {}
    for word in words:
        key, _, value = word.partition("=")
        fields[key] = float(value) if key.endswith("_s") else int(value)
    return process(int(number), **fields)


def reader(lines: str, family: str = "", *, children: bool = True) -> TreeReader:
    """Return the reader of a run of process 0 and, by default, no other."""
    of = session(processes=[process(), *map(member, filter(None, family.split(", ")))])
    of.unsaved.of_marks = HeldLines([held(line) for line in filter(None, lines.split(", "))], children)  # type: ignore[misc] # made-up lines
    return TreeReader(of)


def tree(found: OwnMemory | None) -> str:
    """Return the memory of the tree in MiB, with ≈ before an estimate."""
    assert found is not None
    return "≈" * found.is_estimate + ("?" if found.tree is None else str(found.tree // MIB))


CASES = """
alone |  |  | 50
a child that begins after the mark | 1 parent=0 start_s=0.29 counted_s=0.31 samples=1 | 0.2-0.301 1/400/0 | 50
a child that ends before the mark | 1 parent=0 end_s=0.35 counted_s=0.0 samples=1 | 0.2-0.301 1/400 | 50
a grandchild of a child that had not begun \
| 1 parent=0 start_s=0.295 counted_s=0.31 samples=1, 2 parent=1 start_s=0.299 counted_s=0.31 \
| 0.2-0.31 1/400/0 2/9/0 \
| 50
an orphan is no descendant \
| 1 parent=0 start_s=0.28 end_s=0.32, 2 parent=1 start_s=0.285 counted_s=0.29 samples=9 \
| 0.29-0.31 2/9 \
| 59
an orphan of a parent that no sample saw \
| 1 parent=0 start_s=0.28 end_s=0.33 counted_s=0.32 samples=0, 2 parent=1 start_s=0.285 counted_s=0.29 samples=9 \
| 0.29-0.31 2/9 \
| 59
the same in two samples | 2 | 0.2-0.301 2/30 | 80
another size in the sample before | 2 | 0.2-0.301 2/30/20 | ≈80
a small change | 2 | 0.2-0.301 2/30/31 | 80
bounds of an earlier version | 2 | 0.2-0.301 2/30/20/45 | ≈80
close bounds of an earlier version | 2 | 0.2-0.301 2/30/30/31 | 80
unchanged since the line before | 2 | 0.0-0.1 2/30, 0.2-0.301 | 80
a line for a later mark | 2 | 0.0-0.1 2/30, 0.5-0.6 2/90 | ≈140
after the last line | 2 | 0.0-0.1 2/30 | ≈80
a sample that comes late | 2 | 0.2-0.36 2/30 | ≈80
a sample that comes late to a process alone |  | 0.2-0.36 | 50
larger between the samples | 2 | 0.2-0.301 2/30/45 | ≈80
ended since the sample before | 2 | 0.2-0.301 2/0/30 | ≈50
small in the sample before, and ended | 2 | 0.2-0.301 2/0/1 | ≈50
in no sample | 2 | 0.2-0.301 | ≈50
in the sample after that of the mark | 2 start_s=0.305 | 0.2-0.301, 0.301-0.4 2/9/0 | 50
found by a sample as ended | 2 | 0.2-0.301 2/0/0 | ≈50
ended before the sample before | 2 | 0.0-0.1 2/0/30, 0.2-0.301 | 50
a child of vfork(2) before exec | 2 | 0.2-0.301 2/0 | 50
ended, and never large | 2 high_water_limit=1048576 | 0.2-0.301 2/0/1 | 50
no lines, as by psutil | 2 |  | ?
"""
"""By case: the other processes, the sampler's lines, and the MiB of the tree at 0.3 s; ≈ is an estimate."""


@pytest.mark.parametrize("family, lines, expected", cases(CASES))
def test_tree(family: str, lines: str, expected: str) -> None:
    """A process that read 50 MiB and no descendants had none; the sample that its mark triggers has the others."""
    assert tree(reader(lines, family).at(0.3, OWN, ALONE)) == expected


def test_descendants() -> None:
    """What descendants held is added, also of one that no sample shows; not where only the command counts."""
    reading = Entry(rss=50 * MIB, descendants=[(CHILD, 30 * MIB), (999, 7 * MIB)], listed=True)
    alone = reader("", children=False)

    assert tree(reader("", "1 parent=0").at(0.3, OWN, reading)) == "87"
    assert tree(alone.at(0.3, OWN, reading)) == "50"
    assert alone.at(0.3, CHILD, ALONE) == OwnMemory(rss=50 * MIB)


def test_others_alone() -> None:
    """Descendants that could not be read count as others do; a mark of a shell is all others, or says nothing."""
    assert tree(reader("0.2-0.301 1/400/390", "1 parent=0").at(0.3, OWN, Entry(rss=50 * MIB))) == "≈450"
    assert tree(reader("0.2-0.301 0/50 2/30/20", "2").at(0.3, None, Entry())) == "≈80"
    assert reader("").at(0.3, None, Entry()) is None

    ended = reader("0.2-0.301 0/0/50 2/0/30, 0.5-0.6 2/40", "2 end_s=2")
    assert [tree(ended.at(at_s, None, Entry())) for at_s in (0.3, 1.1, 2.1)] == ["≈?"] * 3


def test_too_many_for_a_line() -> None:
    """Where a line has no entries, the sum is that of the sample after the mark, and an estimate."""
    of = session(processes=[process(), process(2)])
    of.unsaved.of_marks = HeldLines([{"from_s": 0.2, "to_s": 0.5, "rss": None}])

    assert tree(TreeReader(of).at(0.3, OWN, ALONE)) == "≈300"


def test_reused_pid() -> None:
    """A PID stands for the process that had begun last."""
    of = reader("0.0-0.101 0/9 1/400, 0.5-0.601 0/9 2/300", "1 pid=7 end_s=0.2, 2 pid=7 start_s=0.5")

    assert [tree(of.at(at_s, 7, ALONE)) for at_s in (0.1, 0.6)] == ["59", "59"]


@pytest.mark.parametrize("entry", [[], [0], [7, 5], [0, -5], [0, -5, -9, -7]])
def test_damaged_line(entry: list[int]) -> None:
    """A line of marks that is damaged ends nothing, and adds nothing to what the process read itself."""
    damaged = {"held": {"from_s": 0.0, "to_s": 0.6, "rss": [entry]}}
    of = Session.of(session_from(io.BytesIO(journal([0.0, 5], [0.5, 7], damaged, END)), "run"))

    assert tree(TreeReader(of).at(0.55, OWN, ALONE)) == "50"
    TreeReader(of).at(0.55, None, Entry())


@pytest.mark.parametrize("first", [0, 2_999], ids=["a chain", "a circle"])
def test_many_generations(first: int) -> None:
    """Thousands of generations, and parents of a damaged journal that are a circle, take no more time than others."""
    family = [
        f"1 parent={first} counted_s=0.6 samples=1",
        *(f"{of} parent={of - 1} counted_s=0.6 samples=1" for of in range(2, 3_000)),
    ]
    of = reader("0.0-0.6", ", ".join(family))
    began_s = time.process_time()
    found = [of.at(0.5, OWN, ALONE) for _ in range(10)]

    assert tree(found[0]) == "50"
    assert time.process_time() - began_s < HANGING_S


RSS_ERRORS = {
    "Linux 6.1.0-28-amd64 x86_64 128": 0,
    "Linux 6.2.0 x86_64 128": 256 * 128 * 4,
    "Linux 6.8.0-45-generic x86_64 128": 256 * 128 * 4,
    "Linux 6.8.0-45-generic x86_64 4": 32 * 4 * 4,
    "Linux 6.8.0-45-generic-64k aarch64 128": 256 * 128 * 64,
    "Linux 6.8.0 ppc64le 128": 256 * 128 * 64,
    "Linux 6.6.98 x86_64 128": 256 * 128 * 4,
    "Linux 6.6.99 x86_64 128": 0,
    "Linux 6.12.38 x86_64 128": 256 * 128 * 4,
    "Linux 6.12.39-1.el10 x86_64 128": 0,
    "Linux 6.15.7 x86_64 128": 0,
    "Linux 6.16 x86_64 128": 0,
    "Linux 7.0.1 x86_64 128": 0,
    "Linux 5.14.0 x86_64 128": 0,
    "Linux strange x86_64 128": 0,
    "Darwin 6.8.0 x86_64 128": 0,
}
"""By system, release, machine and number of CPUs: KiB."""


@pytest.mark.parametrize("text, kib", RSS_ERRORS.items())
def test_rss_error(text: str, kib: int) -> None:
    """RSS is off by a batch of pages for each CPU, from Linux 6.2 to where /proc was made exact again."""
    system, release, machine, cpus = text.split()

    assert rss_error(Host(system=system, release=release, machine=machine, cpus=int(cpus))) == kib * 1024


def test_rss_error_of_an_unknown_machine() -> None:
    """Without a number of CPUs, nothing is off."""
    assert rss_error(Host(system="Linux", release="6.8.0")) == 0
