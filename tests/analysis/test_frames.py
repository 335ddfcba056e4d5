from __future__ import annotations

import pytest

from nncftools.analysis.build_up import NOT_SEEN, PROGRAM, SEEN, SHARED, BuildUp, Freed, Part, running_text
from nncftools.analysis.code_places import best_frame, place_labels
from nncftools.analysis.frames import Node, held_by, tree_of
from nncftools.analysis.rss_levels import BLOCK, HEAP
from nncftools.render.build_up import branches
from nncftools.session.model import Frame
from tests.made_up import MIB
from tests.made_up_stacks import stack

PLACES = {
    "main": "/a/b.py:9 main",
    "load": "/a/b.py:1 load",
    "run": "/a/b.py:2 run",
    "convert": "/a/b.py:3 convert",
    "work": "/home/me/work/export.py:12 work",
    "decoder": "openvino/frontend/pytorch/ts_decoder.py:105 scripted",
    "trace": "torch/jit/_trace.py:1000 trace",
    "check": "torch/jit/_trace.py:455 _check_trace",
    "machinery": "<frozen importlib._bootstrap>:1176 _find_and_load",
    "loader": "<frozen importlib._bootstrap_external>:940 exec",
    "standard": "/usr/lib/python3.11/dataclasses.py:5 field",
}
NINJA = (
    "/w/ptq.py:38 <module>",
    "nncf/quantization/quantize_model.py:201 quantize",
    "torch/utils/cpp_extension.py:2112 run_ninja",
    "/usr/lib/python3.11/subprocess.py:548 run",
)


def tree(*parts: Part) -> Node:
    """Return the tree of a build-up."""
    return tree_of(BuildUp(1.0, sum(part.size for part in parts), parts))


def read_stack(text: str) -> tuple[Frame, ...]:
    """Return a stack from a text such as ``main > load > /a/b.py:2 f``."""
    return stack(*(PLACES.get(place, place) for place in text.split(" > ")))


def seen(size: int, text: str, certain: int = 99_999) -> Part:
    """Return MiB with a stack, of which so many outer frames are certain."""
    of = read_stack(text)
    depth = min(certain, len(of))
    return Part(size * MIB, SEEN, 0, of, depth, still=depth)


def program(size: int, process: int, name: str = "cc1plus") -> Part:
    """Return MiB of a compiler that Python waits for."""
    return Part(size * MIB, PROGRAM, process, stack(*NINJA), 0, name)


def rows(root: Node, most: int = 60) -> list[str]:
    """Return depth, MiB and label of each row."""
    return [f"{row.depth} {row.size // MIB} {row.label}" for row in branches(root, 0.01, most)[0]]


def held(*parts: Part) -> list[str]:
    """Return MiB, certain MiB and names of the places that hold most."""
    return [f"{of.size // MIB} {of.certain // MIB} {of.label}" for of in held_by(tree(*parts))]


class TestRows:
    def test_small_parts_are_summed(self) -> None:
        """Parts of less than 1 % are one row; if they are less than 1 % together, they are left out."""
        small = [seen(1, f"main > /a/b.py:3 f{number}") for number in range(5)]
        root = tree(seen(195, "main > load"), *small)

        assert rows(root) == ["0 200 a/b.py:9 main", "1 195 :1 load", "1 5 … 5 smaller"]
        assert rows(tree(seen(999, "main > load"), seen(1, "main > run"))) == ["0 1000 a/b.py:9 main › :1 load"]

    def test_what_has_no_stack(self) -> None:
        """What was not seen, what is shared with the parent, and programs have rows beside the outermost frames."""
        root = tree(
            seen(40, "main > load"),
            Part(30 * MIB, NOT_SEEN, 0),
            Part(10 * MIB, SHARED, 1),
            program(12, 2),
            program(8, 3),
        )

        assert rows(root) == [
            "0 40 a/b.py:9 main › :1 load",
            "0 30 not seen",
            "0 20 2 × cc1plus, started by torch/utils/cpp_extension.py:2112 run_ninja, for nncf/…/quantize",
            "0 10 shared with the parent",
        ]

    def test_less_certain(self) -> None:
        """A function that holds the same memory less certainly has a row of its own."""
        root = tree(seen(100, "main > load", certain=1))

        assert [(row.label, row.certain) for row in branches(root, 0.01, 60)[0]] == [
            ("a/b.py:9 main", 100 * MIB),
            (":1 load", 0),
        ]

    def test_bounded(self) -> None:
        """Of many rows, the largest stay, and the others are counted."""
        root = tree(*(seen(10 + number, f"main > /a/b.py:3 f{number}") for number in range(30)))
        kept, left_out = branches(root, 0.01, 10)

        assert (len(kept), left_out) == (10, 21)
        assert [row.size // MIB for row in kept[1:]] == list(range(39, 30, -1))


def test_machinery_is_left_out() -> None:
    """Frames of the import system are no places; what is certain is still counted by whole stacks."""
    (main,) = tree(seen(10, "main > machinery > loader > load", certain=3)).children.values()
    (load,) = main.children.values()

    assert (main.certain, load.certain) == (10 * MIB, 0)
    assert load.frame == read_stack("load")[0]


class TestOrLater:
    """``LOAD`` holds 90 MiB of the heap, of which a fall may have taken some."""

    @pytest.mark.parametrize(
        "gone, expected",
        [
            ([seen(60, "main > convert")], "b.py convert"),
            ([seen(40, "main > convert")], ""),
            ([seen(40, "main > convert"), seen(50, "main > /a/b.py:4 convert > numpy/a.py:1 ones")], "b.py convert"),
            ([seen(60, "main > /a/b.py:2 load")], ""),
            ([seen(60, "main > load"), seen(50, "main > convert")], "b.py convert"),
            ([seen(50, "main > convert"), Part(70 * MIB, NOT_SEEN, 0)], ""),
            ([seen(60, "main > convert > /a/b.py:5 make")], "b.py convert"),
        ],
        ids=[
            "another function",
            "of less than half",
            "two lines",
            "the same function",
            "both",
            "mostly unseen",
            "with what it called",
        ],
    )
    def test_named(self, gone: list[Part], expected: str) -> None:
        """The function that owned most of what is said to be gone is named, where half of a place is in doubt."""
        root = doubted(90, *gone)
        (row,) = [row for row in branches(root, 0.01, 60)[0] if row.label.endswith("load")]

        assert row.or_later == expected
        assert [of.or_later for of in held_by(root) if of.label == "b.py:1 load"] == [expected]

    @pytest.mark.parametrize("size, epoch", [(15, 0), (90, 1)], ids=["less than 16 MiB", "after the fall"])
    def test_not_named(self, size: int, epoch: int) -> None:
        """Small doubts are not worth a word, and memory that came after the fall is not in doubt."""
        root = doubted(size, seen(60, "main > convert"), epoch=epoch)

        assert not any(row.or_later for row in branches(root, 0.01, 60)[0])

    def test_twice(self) -> None:
        """Two falls cannot take more than there is: what is of another kind stays certain."""
        fall = Freed(60 * MIB, [(seen(60, "main > convert"), 60 * MIB)])
        parts = [seen(50, "main > load"), seen(100, "main > load")._replace(memory=BLOCK)]
        root = tree_of(BuildUp(1.0, 150 * MIB, parts, {(0, HEAP): [fall, fall]}))

        assert [(of.certain // MIB, of.or_later) for of in held_by(root)] == [(100, "")]
        assert root.certain == 100 * MIB


def doubted(size: int, *gone: Part, epoch: int = 0) -> Node:
    """Return the tree of MiB of ``LOAD`` on the heap; parts of the heap are said to be gone after that."""
    fall = Freed(sum(part.size for part in gone), [(part, part.size) for part in gone])
    parts = [seen(100, "main > run")._replace(memory=BLOCK), seen(size, "main > load")._replace(epoch=epoch)]
    return tree_of(BuildUp(1.0, 100 * MIB + size * MIB, parts, {(0, HEAP): [fall]}))


class TestRunning:
    def test_caller_of_the_library(self) -> None:
        """The innermost function is named, and who called its library."""
        assert running_text(seen(1, "work > decoder > trace > check")) == (
            "torch/jit/_trace.py:455 _check_trace, called by openvino/…/ts_decoder.py:105"
        )

    def test_not_the_standard_library(self) -> None:
        """Where the standard library works for others, these are named."""
        assert running_text(seen(1, "work > machinery > loader > torch/__init__.py:5 <module> > standard")) == (
            "import torch, called by work/export.py:12"
        )

    def test_hostile_names(self) -> None:
        """Control characters are escaped, and long names are shortened in the middle."""
        text = running_text(Part(1, SEEN, 0, (Frame("\x1b[31m[bold]\n" + "f" * 500, "/a/\x9b.py", 1),), 1))

        assert text.isprintable()
        assert len(text) < 100


class TestHeldBy:
    def test_not_the_entry_point(self) -> None:
        """The entry point is not named while large parts of it hold half, even if these are less certain."""
        parts = [seen(60, "main > load", certain=1), seen(40, "main")]

        assert held(*parts) == ["60 0 b.py:1 load", "40 40 b.py:9 main"]

    def test_certain_place_above_likely_ones(self) -> None:
        """In a library, a certain place is named, not its likely parts. In the user's code, the parts are named."""
        of_library = [seen(50, f"main > trace > torch/b.py:{line} f", certain=2) for line in (5, 6)]
        of_user = [seen(50, f"main > load > /a/b.py:{line} f", certain=2) for line in (5, 6)]

        assert held(*of_library) == ["100 100 torch/jit/_trace.py:1000 trace"]
        assert held(*of_user) == ["50 0 b.py:6 f", "50 0 b.py:5 f"]

    def test_small_lines_of_one_function(self) -> None:
        """Lines of one function that are small, but not together, are one place."""
        parts = [seen(4, f"main > /a/b.py:{line} f") for line in range(20)]

        assert held(*parts, seen(20, "main > run")) == ["80 80 b.py f", "20 20 b.py:2 run"]

    def test_lines_that_call(self) -> None:
        """Lines of one function that only call are one place; lines that hold memory themselves are two."""
        lines = "m/a.py:3 Layer.forward", "m/a.py:4 Layer.forward"
        below = [
            seen(60, f"main > {lines[0]} > m/b.py:1 mlp", certain=2),
            seen(50, f"main > {lines[1]} > m/b.py:2 f", certain=2),
        ]

        assert held(*below) == ["110 110 Layer.forward"]
        assert [text[:2] for text in held(seen(60, f"main > {lines[0]}"), seen(50, f"main > {lines[1]}"))] == [
            "60",
            "50",
        ]

    def test_torch_nn_has_its_caller(self) -> None:
        """A function of torch.nn is named with the function of the model that called it."""
        linear = "torch/nn/modules/linear.py:125 Linear.forward"
        model = "transformers/models/llama.py:180 LlamaMLP.forward"

        assert held(seen(100, f"main > {model} > {linear}")) == ["100 100 LlamaMLP.forward › Linear.forward"]

    def test_import(self) -> None:
        """An import is one place, whatever it imports of its own; other large libraries in it are places."""
        torch = "torch/__init__.py:9 <module> > machinery > loader > torch/_C.py:1 <module>"

        assert held(seen(60, f"main > {torch}"), seen(40, "main > torch/__init__.py:9 <module>")) == [
            "100 100 import torch"
        ]
        assert held(seen(60, f"main > {torch} > sympy/__init__.py:1 <module>"), seen(40, f"main > {torch}")) == [
            "60 60 import sympy"
        ]

    def test_program_of_an_unknown_starter(self) -> None:
        """Without a Python program above, nobody is named."""
        assert held(Part(10 * MIB, PROGRAM, 1, (), 0, "ld\x1b")) == ["10 10 ld\\x1b"]

    def test_programs_first(self) -> None:
        """If other programs hold half of the memory, they are named first."""
        parts = [program(26, 2), program(25, 3, "ld"), seen(45, "main > load")]

        assert [text.split()[2] for text in held(*parts)] == ["cc1plus,", "ld,", "b.py:1"]


class TestLabels:
    def test_other_callers(self) -> None:
        """Two places with the same name are told apart by the first frame in which their stacks differ."""
        first = stack("/a/b.py:9 main", "/a/b.py:1 first", "/a/b.py:3 grow")
        second = stack("/a/b.py:9 main", "/a/b.py:2 second", "/a/b.py:3 grow")

        assert place_labels([first, second]) == ["a/b.py:1 first › a/b.py:3 grow", "a/b.py:2 second › a/b.py:3 grow"]


@pytest.mark.parametrize(
    "text, expected",
    [("work > decoder > standard > loader", "work"), ("decoder > standard > loader", "decoder"), ("standard",) * 2],
)
def test_best_frame(text: str, expected: str) -> None:
    """The deepest own frame says most; without one, the innermost frame outside of the standard library, or any."""
    assert best_frame(read_stack(text)) == read_stack(expected)[0]
