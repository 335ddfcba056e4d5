from __future__ import annotations

from nncftools.analysis.build_up import EITHER, INHERITED, NOT_SEEN, BuildUp, Part
from nncftools.analysis.frames import Node, branches, tree_of
from tests.made_up import MIB
from tests.made_up_stacks import stack

MAIN, LOAD, RUN = "/a/b.py:9 main", "/a/b.py:1 load", "/a/b.py:2 run"


def tree(*parts: Part) -> Node:
    """Return the tree of a build-up."""
    return tree_of(BuildUp(1.0, sum(part.size for part in parts), parts))


def certain(size: int, *places: str) -> Part:
    """Return MiB that certainly belong to a stack."""
    of = stack(*places)
    return Part(size * MIB, "certain", 0, of, of, len(of))


def rows(root: Node, most: int = 60) -> list[tuple[int, int, str]]:
    """Return depth, MiB and label of each row."""
    return [(row.depth, row.size // MIB, row.label) for row in branches(root, 0.01, most)[0]]


def test_a_row_for_each_branch() -> None:
    """Functions that hold the same memory share a row; a row stands above its parts."""
    root = tree(certain(70, MAIN, LOAD, "torch/a.py:1 f"), certain(30, MAIN, RUN))

    assert rows(root) == [(0, 100, "a/b.py:9 main"), (1, 70, ":1 load › torch/a.py:1 f"), (1, 30, ":2 run")]


def test_small_parts_are_summed() -> None:
    """Parts of less than 1 % are one row; if they are less than 1 % together, they are left out."""
    small = [certain(1, MAIN, f"/a/b.py:3 f{number}") for number in range(5)]
    root = tree(certain(195, MAIN, LOAD), *small)

    assert rows(root) == [(0, 200, "a/b.py:9 main"), (1, 195, ":1 load"), (1, 5, "… 5 smaller")]
    assert rows(tree(certain(999, MAIN, LOAD), certain(1, MAIN, RUN))) == [(0, 1000, "a/b.py:9 main › :1 load")]


def test_what_has_no_stack() -> None:
    """What was not seen, is shared with a parent, or was taken in unseen calls, has a row."""
    cut = Part(20 * MIB, EITHER, 0, stack(MAIN), stack(MAIN, RUN), 1)
    root = tree(certain(40, MAIN, LOAD), cut, Part(30 * MIB, NOT_SEEN, 0), Part(10 * MIB, INHERITED, 1))

    assert rows(root) == [
        (0, 60, "a/b.py:9 main"),
        (1, 20, "in calls that were not seen"),
        (1, 40, ":1 load"),
        (0, 30, "not seen"),
        (0, 10, "shared with a parent process at most, counted again"),
    ]


def test_less_certain() -> None:
    """A function that holds the same memory less certainly has a row of its own."""
    either = Part(100 * MIB, EITHER, 0, stack(MAIN, LOAD), stack(MAIN, RUN), 1)

    assert [(row.label, row.certain) for row in branches(tree(either), 0.01, 60)[0]] == [
        ("a/b.py:9 main", 100 * MIB),
        (":1 load", 0),
    ]


def test_bounded() -> None:
    """Of many rows, the largest stay, and the others are counted."""
    root = tree(*(certain(10 + number, MAIN, f"/a/b.py:3 f{number}") for number in range(30)))
    kept, left_out = branches(root, 0.01, 10)

    assert (len(kept), left_out) == (10, 21)
    assert [row.size // MIB for row in kept[1:]] == list(range(39, 30, -1))


def test_deep() -> None:
    """A stack of 1,000 frames is one row."""
    (row,) = rows(tree(certain(10, *(f"/a/b.py:3 f{number}" for number in range(1000)))))

    assert row == (0, 10, "a/b.py:3 f0 › … › :3 f998 › :3 f999")
