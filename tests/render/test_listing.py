from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from nncftools.analysis.operation import Operation
from nncftools.render.listing import (
    FILLS,
    OTHER_PACKAGES,
    REST,
    NumberedOperation,
    choose_package_fills,
    drop_small,
    fills,
    list_operations,
    luminance,
    note_peak,
    number_operations,
)
from nncftools.session.nesting import KINDS
from tests.made_up import figures, marks, mib, nested, session


def operation(name: str, start_s: float = 0, **fields: Any) -> Operation:  # noqa: ANN401 — any field
    """Return an operation of half a second."""
    return Operation(**{"name": name, "start_s": start_s, "end_s": start_s + 0.5, **fields})


def test_few_calls_stay_apart() -> None:
    """Up to three calls of one function inside of one operation are shown one by one."""
    of = [operation("a", 0, end_s=9), *(operation("b", 1.0 + n, depth=1) for n in range(3))]

    assert list_operations(nested(of), 2) == of


def test_outermost_calls_in_a_row() -> None:
    """Many outermost calls of one function with no other between them are one row; a few are not."""
    run = [operation("Generation", float(n), call="g") for n in range(20)]
    after = [operation("Saving", 30), operation("Generation", 31, call="g")]

    assert [(shown.name, shown.count) for shown in list_operations(nested([*run, *after]), 1)] == [
        ("Generation", 20),
        ("Saving", 1),
        ("Generation", 1),
    ]
    assert len(list_operations(nested(run[:12]), 1)) == 12


def test_unknown_stays_unknown() -> None:
    """A sum with an unknown figure is unknown; the error of one call is shown for all."""
    run = [
        operation(
            "g", float(n), figures=figures(read_bytes=None if n == 3 else 1), error="KeyError" if n == 5 else None
        )
        for n in range(20)
    ]
    (shown,) = list_operations(nested(run), 1)

    assert (shown.read_bytes, shown.error) == (None, "KeyError")


def test_row_of_many_holds_the_peak() -> None:
    """A row of many calls holds the peak if one of them does, and may hold it if one of them may."""

    def row(*holding: bool | None) -> bool | None:
        held = [False, False, False, *holding]
        calls = [operation("c", n, depth=1, call="f", has_peak=one) for n, one in enumerate(held)]
        return list_operations(nested([operation("All", 0, end_s=99), *calls]), 2)[1].has_peak

    assert [row(*holding) for holding in ([None, True], [None], [False])] == [True, None, False]


def test_calls_of_parallel_processes() -> None:
    """Calls are in the row of their own process's operation, although another process's began later."""
    of = [operation("Quantization", start_s, end_s=50, pid=pid) for start_s, pid in ((0, 1), (1, 2))]
    of += [operation("Compilation", 2.0 + n, depth=1, call="f", pid=1 + n % 2) for n in range(10)]

    assert [(row.name, row.pid, row.count) for row in list_operations(nested(of), 2)] == [
        ("Quantization", 1, 1),
        ("Compilation", 1, 5),
        ("Quantization", 2, 1),
        ("Compilation", 2, 5),
    ]


def test_sum_of_parallel_calls_is_unknown() -> None:
    """Each of several parallel calls has what all of them spent: the sum of one row is not known."""
    after = [operation("a", float(n), figures=figures(cpu=(0.25, None))) for n in range(20)]
    beside = [operation("a", n / 4, figures=figures(cpu=(0.25, None)), is_parallel=True) for n in range(20)]
    (known,), (unknown,) = list_operations(nested(after), 1), list_operations(nested(beside), 1)

    assert (known.cpu_s, known.is_parallel) == (5, False)
    assert (unknown.cpu_s, unknown.cpu_average, unknown.is_parallel) == (None, None, True)


def test_calls_that_were_counted_together() -> None:
    """Calls that the log counts together, and those before them, are one row."""
    (row,) = list_operations(nested([operation("a", 0), operation("a", 1, count=990, total_s=0.5, longest_s=0.1)]), 1)

    assert row.count == 991


def named(name: str = "step", start_s: float = 0, duration_s: float = 1, **fields: Any) -> Operation:  # noqa: ANN401 — any field of an operation
    """Return an operation."""
    return Operation(name=name, start_s=start_s, end_s=start_s + duration_s, **fields)


def test_numbers_are_paths_in_the_tree() -> None:
    """A number says which operation on each level it is, so it does not depend on how many levels are shown."""
    of = session(marks=marks("a 0-5, a/b 1-4, a/b/c 2-3, a/b/c 3-4, a/b 4-5, a 5-7, a/b 6-7, a 7-8"), duration_s=8.0)
    every = ["1", "1.1", "1.1.1", "1.1.2", "1.2", "2", "2.1", "3"]

    for depth in (1, 2, 3):
        shown = [row.number for row in number_operations(of, depth)]
        assert shown == [number for number in every if number.count(".") < depth]


class TestSmall:
    """Operations of less than 1 % of time and memory."""

    @staticmethod
    def left(*operations: Operation) -> list[int]:
        """Return the numbers of the operations that are shown of a run of 100 s."""
        of = session({"rss": mib(1, 1000)}, duration_s=100.0)
        numbered = [NumberedOperation(f"{number}", each, REST) for number, each in enumerate(operations, 1)]
        return [int(one.number) for one in drop_small(numbered, of)]

    def test_folded(self) -> None:
        """Several small ones are left out; a single one takes no more room than its replacement."""
        large, small = named(duration_s=90), named(duration_s=0.9)

        assert self.left(large, small, small) == [1]
        assert self.left(large, small) == [1, 2]

    def test_all_are_small(self) -> None:
        """Many small ones that took most of the time are what the run did."""
        assert self.left(*[named(duration_s=0.9)] * 50, named(duration_s=10)) == list(range(1, 52))

    @pytest.mark.parametrize(
        "fields, shown",
        [
            ({"has_peak": True}, True),
            ({"has_peak": None}, True),
            ({"error": "ValueError"}, True),
            ({"figures": figures(rss=mib(100, 111, 111))}, True),
            ({"figures": figures(rss=mib(100, 100, 111))}, True),
            ({"figures": figures(rss=mib(111, 100, 111))}, True),
            ({"figures": figures(rss=mib(100, 109, 109))}, False),
        ],
        ids=["peak", "perhaps the peak", "failed", "grew", "went up", "freed", "grew little"],
    )
    def test_never_left_out(self, fields: dict[str, Any], *, shown: bool) -> None:
        """What holds the peak, failed or changed memory by more than 1 % of the peak is shown, however short it was."""
        small = named(duration_s=0.5)
        found = self.left(named(duration_s=90), named(duration_s=0.5, **fields), small, small)

        assert (2 in found) == shown


class TestNotes:
    """The mark of the peak in a table."""

    @pytest.mark.parametrize("span, note", [("0-0.45", "after"), ("0.55-1", "before")])
    def test_just_outside(self, span: str, note: str) -> None:
        """The nearest operation is marked as such."""
        columns = {"rss": mib(*[100] * 5, 300, *[100] * 5), "time_s": [place / 10 for place in range(11)]}
        of = session(columns, marks=marks(f"A {span}"))

        assert note_peak(of.operations, of) == {id(of.operations[0]): f"<- peak just {note}"}


EVERY_COLOUR = sorted({look.colour for look in FILLS})
SIGHT = {
    "of three colours": "1 0 0 0 1 0 0 0 1",
    "without red": "0.152286 1.052583 -0.204868 0.114503 0.786281 0.099216 -0.003882 -0.048116 1.051998",
    "without green": "0.367322 0.860646 -0.227968 0.280085 0.672501 0.047413 -0.01182 0.04294 0.968881",
    "without blue": "1.255528 -0.076749 -0.178779 -0.078411 0.930809 0.147602 0.004733 0.691367 0.3039",
}
"""Machado, Oliveira and Fernandes 2009, in linear RGB."""
OKABE_ITO = ["#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#000000"]


def linear(colour: str) -> NDArray[np.float64]:
    """Return the linear RGB of a colour."""
    levels = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    return np.where(levels <= 0.04045, levels / 12.92, ((levels + 0.055) / 1.055) ** 2.4)


def lab(rgb: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the CIE L*a*b* of a colour in linear RGB."""
    xyz = np.array([(0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505)]) @ rgb.clip(0, 1)
    x, y, z = np.cbrt(xyz / (0.9505, 1, 1.089))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def nearest(colours: list[str], sight: str) -> float:
    """Return the smallest difference of two of the colours."""
    matrix = np.array(SIGHT[sight].split(), float).reshape(3, 3)
    seen = [lab(matrix @ linear(colour)) for colour in colours]
    return min(float(np.linalg.norm(one - other)) for one, other in combinations(seen, 2))


@pytest.mark.parametrize("sight", SIGHT)
def test_any_two_colours_are_told_apart(sight: str) -> None:
    """Also for the colour-blind, no two colours are nearer to each other than two of Okabe and Ito are."""
    assert nearest(EVERY_COLOUR, sight) >= nearest(OKABE_ITO, sight)


def test_every_kind_has_a_colour_of_its_own() -> None:
    """Kinds differ by colour alone."""
    of = fills([operation(kind) for kind in KINDS])

    assert len({look.colour for look in of.values()}) == len(KINDS)
    assert {look.hatch for look in of.values()} == {""}


@pytest.mark.parametrize("one", [operation("compilation"), operation("my model", kind="Compilation")])
def test_a_kind_is_known_by_its_name_or_field(one: Operation) -> None:
    """An operation's kind comes from its mark or from its name, in upper or lower case."""
    assert fills([one])[one.name] == fills([operation("Compilation")])["Compilation"]


def test_other_names_take_what_is_left() -> None:
    """Names that are of no kind take other fills than the kinds that are there, in the order of appearance."""
    of = fills([operation("b"), operation("Export"), operation("a"), operation("b")])

    assert of["b"], of["a"] == [look for look in FILLS if look != of["Export"]][:2]


def test_more_names_than_fills() -> None:
    """More names than fills have them in turn; a kind keeps its own to itself."""
    of = fills([operation("Export"), *(operation(f"{number}") for number in range(2_000))])

    assert len(of) == 2_001
    assert list(of.values()).count(of["Export"]) == 1


class TestPackages:
    def test_program_stands_out(self) -> None:
        """No package has the colour of the program's own code, even if that is not there."""
        of = choose_package_fills([f"p{number}" for number in range(50)])

        assert choose_package_fills([""])[""].colour not in {fill.colour for fill in of.values()}

    def test_others(self) -> None:
        """The first packages have a plain colour each, the others one together."""
        of = list(choose_package_fills([f"p{number}" for number in range(20)]).values())

        assert len(set(of[:8])) == 8
        assert set(of[8:]) == {OTHER_PACKAGES}
        assert not any(fill.hatch for fill in of)

    def test_readable(self) -> None:
        """Names can be read on every fill: the contrast is at least 4.5, as WCAG asks for."""
        packages = ["", "python", "torch", "openvino", "nncf", "transformers", "optimum", *"abc"]
        for fill in {*choose_package_fills(packages).values(), *FILLS, REST, OTHER_PACKAGES}:
            dark, light = sorted((luminance(fill.colour), luminance(fill.ink)))
            assert (light + 0.05) / (dark + 0.05) >= 4.5
