"""When mappings are read.

What memory is, from the text of smaps.
"""

from __future__ import annotations

import json
import mmap
import os
import pathlib

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

    def __init__(self, folder: pathlib.Path, least_s: float = 10.0) -> None:
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
def tree(tmp_path: pathlib.Path) -> Tree:
    """Return a tree that was never read."""
    return Tree(tmp_path)


@pytest.mark.parametrize(
    ("mib", "at_rest", "at_s", "expected"),
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


def test_budget(tmp_path: pathlib.Path) -> None:
    """When the budget is spent, nothing is read."""
    tree = Tree(tmp_path, least_s=0.001)
    tree.budget.mappings_s = 0.002

    assert not tree.has_read(1_000, at_rest=True)


def test_groups_are_written(tree: Tree, tmp_path: pathlib.Path) -> None:
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
Group = dict[str, object]


def entry(  # noqa: PLR0913 — one parameter per figure
    name: str, mib: int, *, rights: str = "r--p", shared: int = 0, clean: int = 0, dirty: int = 0, anonymous: int = 0
) -> str:
    """Return one mapping; sizes are in MiB."""
    sizes = {"kib": mib, "shared": shared, "clean": clean, "dirty": dirty, "anonymous": anonymous}
    return ENTRY.format(
        span="55d0c0000000-55d0c8000000", rights=rights, name=name, **{key: size * 1024 for key, size in sizes.items()}
    )


def found(*entries: str) -> dict[tuple[str, str], list[int]]:
    """Return the sizes of the groups in MiB."""
    groups = group_mappings("".join(entries).encode())
    return {(kind, name): [size // MIB for size in sizes] for kind, name, sizes in groups}


def test_groups() -> None:
    """Anonymous memory is summed, a large file has its own group, libraries are together."""
    sizes = found(
        entry("[heap]", 40, rights="rw-p", dirty=40, anonymous=40),
        entry("", 60, rights="rw-p", dirty=60, anonymous=60),
        entry("[anon:torch]", 1, rights="rw-p", dirty=1, anonymous=1),
        entry("/models/a b/model.safetensors", 257, clean=257),
        entry("/usr/lib/libtorch_cpu.so.2", 30, rights="r-xp", shared=30),
        entry("/usr/lib/libtorch_cpu.so.2", 4, rights="rw-p", dirty=4, anonymous=4),
        entry("/usr/bin/python3.11", 3, rights="r-xp", clean=3),
        entry("[stack]", 2, rights="rw-p", dirty=2, anonymous=2),
        entry("/dev/shm/torch_77", 16, rights="rw-s", shared=16),
    )

    assert sizes == {
        ("file", "/models/a b/model.safetensors"): [257, 0, 0, 257, 0, 0],
        ("anonymous", ""): [101, 0, 0, 0, 101, 101],
        ("libraries", ""): [37, 30, 0, 3, 4, 4],
        ("shared", ""): [16, 16, 0, 0, 0, 0],
        ("stack", ""): [2, 0, 0, 0, 2, 2],
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (entry("/m.bin", 100, rights="rw-p", clean=40, dirty=60, anonymous=60), ("/m.bin", [100, 0, 0, 40, 60, 60])),
        (entry("/tmp/m.onnx (deleted)", 5, clean=5), ("/tmp/m.onnx", [5, 0, 0, 5, 0, 0])),
    ],
    ids=["pages that were written to", "deleted"],
)
def test_file(text: str, expected: tuple[str, list[int]]) -> None:
    """Pages of a private mapping that were written to belong to the file, which keeps its name when it is deleted."""
    name, sizes = expected
    assert found(text) == {("file", name): sizes}


def test_many_files() -> None:
    """Only the largest files have groups of their own."""
    sizes = found(*(entry(f"/data/{number}.bin", number, clean=number) for number in range(1, 41)))

    assert len(sizes) == 21
    assert ("file", "/data/40.bin") in sizes
    assert sizes["other_files", ""][0] == sum(range(1, 21))


def test_own_mappings() -> None:
    """The groups of a real process sum to its RSS."""
    rss = sum(sizes[0] for _, _, sizes in group_mappings(pathlib.Path("/proc/self/smaps").read_bytes()))
    pages = int(pathlib.Path("/proc/self/statm").read_text("ascii").split()[1])

    assert abs(rss - pages * mmap.PAGESIZE) < 0.05 * rss + MIB
