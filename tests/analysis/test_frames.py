from __future__ import annotations

from nncftools.analysis.build_up import EITHER, INHERITED, NOT_SEEN, BuildUp, Part
from nncftools.analysis.frames import (
    Node,
    best_frame,
    branches,
    held_by,
    place_labels,
    running_text,
    stack_text,
    tree_of,
)
from nncftools.session.model import Frame
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
        (0, 10, "shared with a parent process, at most"),
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


TOOL = "/env/bin/optimum-cli:8 <module>"
TELLING_MAIN = "/home/me/work/export.py:12 main"
EXPORT = ("optimum/cli.py:20 main", "optimum/exporters/openvino/convert.py:394 export")
DECODER = "openvino/frontend/pytorch/ts_decoder.py:105 scripted"
CHECK = ("torch/jit/_trace.py:1000 trace", "torch/jit/_trace.py:455 _check_trace")
MACHINERY = ("<frozen importlib._bootstrap>:1176 _find_and_load", "<frozen importlib._bootstrap_external>:940 exec")
STANDARD = "/usr/lib/python3.11/dataclasses.py:5 field"


def built(*parts: tuple[tuple[Frame, ...], int]) -> BuildUp:
    """Return a build-up of stacks with their MiB, all certain."""
    found = [Part(size * MIB, "certain", 0, of, of, len(of)) for of, size in parts]
    return BuildUp(1.0, sum(part.size for part in found), found)


class TestStack:
    def test_program_caller_and_innermost(self) -> None:
        """A stack is told by the program's own innermost frame, the caller of the innermost library, and the end."""
        told = stack_text(stack(TELLING_MAIN, *EXPORT, DECODER, *CHECK))

        assert told == (
            "work/export.py:12 main › … › openvino/…/ts_decoder.py:105 scripted"
            " › … › torch/jit/_trace.py:455 _check_trace"
        )

    def test_tool_that_pip_installed(self) -> None:
        """The starter of an installed tool tells nothing: the end of the outermost library stands for the program."""
        told = stack_text(stack(TOOL, *EXPORT, DECODER, CHECK[0]))

        assert told == (
            "optimum/…/convert.py:394 export › openvino/…/ts_decoder.py:105 scripted › torch/jit/_trace.py:1000 trace"
        )

    def test_called_by_the_program(self) -> None:
        """Of a library that the program itself calls, the entry is named; its file is not repeated."""
        assert stack_text(stack(TELLING_MAIN, *CHECK)) == (
            "work/export.py:12 main › torch/jit/_trace.py:1000 trace › :455 _check_trace"
        )

    def test_program_alone(self) -> None:
        """Of the program's own frames, the innermost two are told."""
        told = stack_text(stack("/a/b.py:9 <module>", "/a/b.py:7 main", "/a/b.py:3 grow"))

        assert told == "a/b.py:7 main › :3 grow"

    def test_import(self) -> None:
        """Code that runs while a module is imported is told by the module; import machinery is never shown."""
        told = stack_text(stack(TELLING_MAIN, *MACHINERY, "torch/__init__.py:5 <module>", *MACHINERY, STANDARD))

        assert told == "work/export.py:12 main › import torch › dataclasses.py:5 field"

    def test_nothing(self) -> None:
        """A stack without frames, or of import machinery alone, is an empty text."""
        assert [stack_text(()), stack_text(stack(*MACHINERY))] == ["", ""]

    def test_deep(self) -> None:
        """A stack of 400 frames is as short as any other."""
        deep = stack(TELLING_MAIN, *(f"torch/nn/m{number}.py:1 forward" for number in range(400)))

        assert stack_text(deep) == "work/export.py:12 main › torch/nn/m0.py:1 forward › … › torch/nn/m399.py:1 forward"

    def test_hostile_names(self) -> None:
        """Control characters are escaped, and long names are shortened in the middle."""
        told = stack_text([Frame("\x1b[31m[bold]\n" + "f" * 500, "/a/\x9b.py", 1)])

        assert told.isprintable()
        assert len(told) < 100


class TestRunning:
    def test_one_of_two(self) -> None:
        """If the program stood in one of two stacks, both are told."""
        top = Part(1, EITHER, 0, stack(TELLING_MAIN, CHECK[0]), stack(TELLING_MAIN, DECODER), 1)

        assert running_text(top) == (
            "work/export.py:12 main › torch/jit/_trace.py:1000 trace, or openvino/…/ts_decoder.py:105 scripted"
        )

    def test_function_that_returned(self) -> None:
        """If one stack continues the other, it is told first: memory grew in what was called."""
        top = Part(1, EITHER, 0, stack(TELLING_MAIN), stack(TELLING_MAIN, CHECK[0]), 1)

        assert running_text(top) == "work/export.py:12 main › torch/jit/_trace.py:1000 trace, or work/export.py:12 main"


class TestPlaces:
    def test_named_by_their_callers(self) -> None:
        """Two places with the same function are told apart by the first frame in which their stacks differ."""
        first = stack("/a/b.py:9 main", "/a/b.py:1 first", "/a/b.py:3 grow")
        second = stack("/a/b.py:9 main", "/a/b.py:2 second", "/a/b.py:3 grow")

        assert place_labels([first, second]) == ["a/b.py:1 first › :3 grow", "a/b.py:2 second › :3 grow"]

    def test_largest_first(self) -> None:
        """Those that hold most are named, the largest first, with what is certain."""
        found = held_by(tree_of(built((stack(TELLING_MAIN, DECODER), 100), (stack(TELLING_MAIN, CHECK[0]), 200))), 3)

        assert [(one.size // MIB, one.certain // MIB) for one in found] == [(200, 200), (100, 100)]
        assert found[0].label == "work/export.py:12 main › torch/jit/_trace.py:1000 trace"

    def test_calls_that_were_not_seen(self) -> None:
        """What was taken between two different stacks is named by the function that they share."""
        shared = Part(300 * MIB, EITHER, 0, stack(TELLING_MAIN), stack(TELLING_MAIN, DECODER), 1)
        known = built((stack(TELLING_MAIN, *CHECK), 100)).parts
        found = held_by(tree_of(BuildUp(1.0, 400 * MIB, [shared, *known])), 3)

        assert [(one.size // MIB, one.label) for one in found] == [
            (300, "in calls not seen, from work/export.py:12 main"),
            (100, "work/export.py:12 main › … › torch/jit/_trace.py:455 _check_trace"),
        ]

    def test_deepest_stack_that_python_allows(self) -> None:
        """A stack of 5,000 frames has its place."""
        deep = stack(TELLING_MAIN, *(f"torch/nn/m{number}.py:1 forward" for number in range(5000)))
        (found,) = held_by(tree_of(built((deep, 100))), 3)

        assert found.label.endswith("torch/nn/m4999.py:1 forward")


def test_most_telling_frame() -> None:
    """The innermost frame outside of the standard library tells most; if there is none, the innermost one."""
    assert best_frame(stack(TELLING_MAIN, DECODER, STANDARD, *MACHINERY)) == stack(DECODER)[0]
    assert best_frame(stack(STANDARD)) == stack(STANDARD)[0]
    assert best_frame(()) is None
