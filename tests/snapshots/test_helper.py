"""When mappings are read.

What memory is, from the text of smaps.
"""

from __future__ import annotations

import json
import mmap
import os
from pathlib import Path

import pytest

from nncftools.journal.writing import Writer
from nncftools.sampler.tree import PAGE, Common, Process
from nncftools.snapshots import helper
from nncftools.snapshots.helper import Budget, MappingWatch, group_mappings
from nncftools.snapshots.tree_watch import Watched

MIB = 1 << 20
REST_NS = 50_000_000


class Tree:
    """A tree of this process, whose memory is as a test says."""

    def __init__(self, folder: Path, least_s: float = 10.0) -> None:
        self._log = folder / "log"
        self.writer = Writer(os.open(self._log, os.O_RDWR | os.O_CREAT | os.O_APPEND))
        self.budget = Budget(0.01, least_s / helper._MAPPINGS)
        self.watch = MappingWatch(self.writer, self.budget)
        self.copied = 0
        """The MiB that are no pages of files."""
        self.one = Watched(Process("/proc", os.getpid(), None, 0, files=(), common=Common()), 0)

    def has_read(self, mib: int, *, at_rest: bool, at_ns: int = REST_NS) -> bool:
        """Return whether mappings are read when the tree holds this much at a moment."""
        self.one.growth.add(0, mib * MIB // PAGE, (mib - self.copied) * MIB // PAGE)
        before = len(self.totals())
        self.watch.look([self.one], at_ns, 0 if at_rest else at_ns)
        return len(self.totals()) > before

    def totals(self) -> list[int]:
        """Return the memory at each reading, in MiB."""
        self.writer.flush()
        lines = self._log.read_text(encoding="utf-8").splitlines()
        return [json.loads(line)["mappings"]["total"] // MIB for line in lines]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Return a tree that was never read."""
    return Tree(tmp_path)


@pytest.mark.parametrize(
    "mib, at_rest, at_s, expected",
    [
        (590, True, 0.05, False),
        (601, True, 0.05, True),
        (312, True, 0.4, False),
        (318, True, 0.4, True),
        (650, False, 0.05, False),
        (650, False, 1.05, True),
        (290, True, 0.4, False),
    ],
    ids=["less than twice", "twice", "rest at 4 %", "rest at 6 %", "rise", "rise for a second", "less memory"],
)
def test_when_it_is_read(tree: Tree, mib: int, at_s: float, *, at_rest: bool, expected: bool) -> None:
    """Mappings are read again at twice as much, at 5 % more where memory rests, and once a second of a rise."""
    assert not tree.has_read(120, at_rest=True)  # a small program is not worth it
    assert tree.has_read(300, at_rest=True)
    assert tree.has_read(mib, at_rest=at_rest, at_ns=round(at_s * 1e9)) is expected


def test_budget(tmp_path: Path) -> None:
    """When the budget is spent, nothing is read."""
    tree = Tree(tmp_path, least_s=0.001)
    tree.budget.mappings_s = 0.002

    assert not tree.has_read(1_000, at_rest=True)


def test_groups_are_written(tree: Tree, tmp_path: Path) -> None:
    """The line has the groups of each process."""
    tree.has_read(1_000, at_rest=True)

    line = json.loads((tmp_path / "log").read_text(encoding="utf-8"))["mappings"]
    ((number, groups),) = line["processes"]
    assert number == 0
    assert {"anonymous", "libraries"} <= {kind for kind, _, _ in groups}


def test_copied_weights(tree: Tree) -> None:
    """If mapped pages become anonymous, the same amount of memory is read again."""
    tree.has_read(1_000, at_rest=True)
    assert not tree.has_read(1_000, at_rest=True)

    tree.copied = 800

    assert tree.has_read(1_000, at_rest=True)


ENTRY = """{span} {rights} 00000000 08:01 77 {name}
Size:               {kib} kB
KernelPageSize:        4 kB
MMUPageSize:           4 kB
Rss:                {kib} kB
Pss:                {kib} kB
Pss_Dirty:             0 kB
Shared_Clean:       {shared} kB
Shared_Dirty:          0 kB
Private_Clean:      {clean} kB
Private_Dirty:      {dirty} kB
Referenced:         {kib} kB
Anonymous:          {anonymous} kB
KSM:                   0 kB
LazyFree:              0 kB
AnonHugePages:         0 kB
Swap:                  0 kB
VmFlags: rd mr mw me
"""


def smaps(text: str) -> bytes:
    """Return mappings from lines such as ``60 rw-p clean=20 dirty=40 | /m.bin``, in MiB."""
    found = []
    for line in text.splitlines():
        figures, _, name = line.partition("|")
        mib, rights, *parts = figures.split()
        sizes = dict.fromkeys(("shared", "clean", "dirty", "anonymous"), 0)
        for part in parts:
            kind, _, size = part.partition("=")
            sizes[kind] = int(size) * 1024
        span = "55d0c0000000-55d0c8000000"
        found.append(ENTRY.format(span=span, rights=rights, name=name.strip(), kib=int(mib) * 1024, **sizes))
    return "".join(found).encode()


def found(text: str) -> str:
    """Return the groups of mappings with their sizes in MiB."""
    groups = group_mappings(smaps(text))
    return "".join(f"{kind} {name}: {[size // MIB for size in sizes]}\n" for kind, name, sizes in groups)


MAPPINGS = """\
40 rw-p dirty=40 anonymous=40 | [heap]
60 rw-p dirty=60 anonymous=60 |
1 rw-p dirty=1 anonymous=1 | [anon:torch]
257 r--p clean=257 | /models/a b/model.safetensors
30 r-xp shared=30 | /usr/lib/libtorch_cpu.so.2
4 rw-p dirty=4 anonymous=4 | /usr/lib/libtorch_cpu.so.2
3 r-xp clean=3 | /usr/bin/python3.11
2 rw-p dirty=2 anonymous=2 | [stack]
16 rw-s shared=16 | /dev/shm/torch_77
"""
GROUPS = """\
anonymous : [101, 0, 0, 0, 101, 101]
file /models/a b/model.safetensors: [257, 0, 0, 257, 0, 0]
libraries : [37, 30, 0, 3, 4, 4]
shared : [16, 16, 0, 0, 0, 0]
stack : [2, 0, 0, 0, 2, 2]
"""


@pytest.mark.parametrize(
    "mappings, expected",
    [
        (MAPPINGS, GROUPS),
        ("100 rw-p clean=40 dirty=60 anonymous=60 | /m.bin", "file /m.bin: [100, 0, 0, 40, 60, 60]\n"),
        ("5 r--p clean=5 | /tmp/m.onnx (deleted)", "file /tmp/m.onnx: [5, 0, 0, 5, 0, 0]\n"),
    ],
    ids=["all kinds", "pages of a file that were written to", "deleted"],
)
def test_groups(mappings: str, expected: str) -> None:
    """Anonymous memory is summed, a large file has its own group, libraries are together."""
    assert sorted(found(mappings).splitlines()) == expected.splitlines()


def test_many_files() -> None:
    """Only the largest files have groups of their own."""
    groups = found("\n".join(f"{number} r--p clean={number} | /data/{number}.bin" for number in range(1, 41)))

    assert groups.count("\n") == 21
    assert "file /data/40.bin: " in groups
    assert f"other_files : [{sum(range(1, 21))}, " in groups


def test_own_mappings() -> None:
    """The groups of a real process sum to its RSS."""
    rss = sum(sizes[0] for _, _, sizes in group_mappings(Path("/proc/self/smaps").read_bytes()))
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])

    assert abs(rss - pages * mmap.PAGESIZE) < 0.05 * rss + MIB
