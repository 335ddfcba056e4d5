"""When mappings are read."""

from __future__ import annotations

import json
import os
import pathlib

import pytest

from nncftools.journal.writing import Writer
from nncftools.sampler.tree import PAGE, Allowance, Process
from nncftools.snapshots.helper import MappingWatch
from nncftools.snapshots.tree_watch import Watched

MIB = 1 << 20
REST_NS = 50_000_000


class Tree:
    """A tree of this process, whose memory is as a test says."""

    def __init__(self, folder: pathlib.Path, least_s: float = 10.0) -> None:
        self._log = folder / "log"
        self.writer = Writer(os.open(self._log, os.O_RDWR | os.O_CREAT | os.O_APPEND))
        self.watch = MappingWatch(self.writer, 0.01, least_s)
        self.one = Watched(Process("/proc", os.getpid(), None, 0, (), allowance=Allowance()), 0)

    def has_read(self, mib: int, *, at_rest: bool) -> bool:
        """Return whether mappings are read when the tree holds this much."""
        self.one.growth.add(0, mib * MIB // PAGE)
        before = len(self.totals())
        self.watch._budget._wait_until_s = 0
        self.watch.look([self.one], REST_NS, 0 if at_rest else REST_NS)
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


def test_small_programs(tree: Tree) -> None:
    """A small program is not worth it."""
    assert not tree.has_read(150, at_rest=True)


def test_at_rest(tree: Tree) -> None:
    """Where memory rests, a rise by 40 % is enough."""
    assert tree.has_read(200, at_rest=True)
    assert not tree.has_read(270, at_rest=True)
    assert tree.has_read(281, at_rest=True)


def test_while_it_rises(tree: Tree) -> None:
    """While it rises, a higher maximum must come: it is not at its peak yet."""
    assert tree.has_read(200, at_rest=True)
    assert not tree.has_read(450, at_rest=False)
    assert tree.has_read(600, at_rest=False)


def test_lower_memory(tree: Tree) -> None:
    """Less memory than at the last reading is not read."""
    tree.has_read(1_000, at_rest=True)

    assert not tree.has_read(900, at_rest=True)
    assert tree.totals() == [1_000]


def test_budget(tmp_path: pathlib.Path) -> None:
    """When the budget is spent, nothing is read."""
    tree = Tree(tmp_path, least_s=0.001)

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

    tree.one.anonymous = 800 * MIB

    assert tree.has_read(1_000, at_rest=True)
