from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from nncftools.render import colours
from nncftools.render.colours import FILLS, OTHER_PACKAGES, REST, fills, package_fills
from nncftools.session.operation import KINDS, Operation

EVERY_COLOUR = sorted({look.colour for look in FILLS})
SIGHT = {
    "of three colours": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "without red": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "without green": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "without blue": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039)),
}
"""Machado, Oliveira and Fernandes 2009, in linear RGB."""
OKABE_ITO = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#000000")


def operation(name: str, **fields: Any) -> Operation:  # noqa: ANN401 — any field of an operation
    """Return an operation of one second."""
    return Operation(name=name, start_s=0, end_s=1, **fields)


def linear(colour: str) -> NDArray[np.float64]:
    """Return the linear RGB of a colour."""
    levels = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    return np.where(levels <= 0.04045, levels / 12.92, ((levels + 0.055) / 1.055) ** 2.4)


def lab(rgb: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the CIE L*a*b* of a colour in linear RGB."""
    xyz = np.array([(0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505)]) @ rgb.clip(0, 1)
    x, y, z = np.cbrt(xyz / (0.9505, 1, 1.089))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def nearest(colours: tuple[str, ...] | list[str], sight: str) -> float:
    """Return the smallest difference of two of the colours."""
    seen = [lab(np.array(SIGHT[sight]) @ linear(colour)) for colour in colours]
    return min(float(np.linalg.norm(one - other)) for one, other in combinations(seen, 2))


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours as WCAG defines it."""
    lighter, darker = sorted((float(np.dot((0.2126, 0.7152, 0.0722), linear(of))) for of in (one, other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("sight", SIGHT)
def test_any_two_colours_are_told_apart(sight: str) -> None:
    """Also for the colour-blind, no two colours are nearer to each other than two of Okabe and Ito are."""
    assert nearest(EVERY_COLOUR, sight) >= nearest(OKABE_ITO, sight)


@pytest.mark.parametrize("look", [*FILLS[: len(EVERY_COLOUR)], REST], ids=lambda look: look.colour)
def test_text_on_a_colour_is_readable(look: Any) -> None:  # noqa: ANN401 — a look
    """Black or white text on a colour has the contrast that WCAG asks for."""
    assert contrast(look.colour, look.ink) >= 4.5


def test_a_kind_has_its_colour_in_every_picture() -> None:
    """A kind has the same fill, independent of other operations and their order."""
    alone = fills([operation("Compilation", kind="Compilation")])
    among = fills([operation("mine"), operation("Saving", kind="Saving"), operation("Compilation", kind="Compilation")])

    assert alone["Compilation"] == among["Compilation"]


def test_every_kind_has_a_colour_of_its_own() -> None:
    """Kinds differ by colour alone."""
    of = fills([operation(kind) for kind in KINDS])

    assert len({look.colour for look in of.values()}) == len(KINDS)
    assert {look.hatch for look in of.values()} == {""}


@pytest.mark.parametrize("one", [operation("compilation"), operation("my model", kind="Compilation")])
def test_a_kind_is_known_by_its_name_or_field(one: Operation) -> None:
    """An operation's kind comes from its mark or from its name, in upper or lower case."""
    assert fills([one])[one.name] == fills([operation("Compilation")])["Compilation"]


def test_an_unknown_kind_is_none() -> None:
    """A kind of another version is no kind: the operation is coloured by its name."""
    assert fills([operation("x", kind="Teleport")]) == fills([operation("x")])


def test_one_name_has_one_look() -> None:
    """Two operations of one name look the same, even if only one of them has a kind."""
    of = fills([operation("x"), operation("x", kind="Saving"), operation("y")])

    assert of["x"] == fills([operation("Saving")])["Saving"]
    assert len(of) == 2


def test_other_names_take_what_is_left() -> None:
    """Names that are of no kind take other fills than the kinds that are there, in the order of appearance."""
    of = fills([operation("b"), operation("Export"), operation("a"), operation("b")])

    assert of["b"], of["a"] == [look for look in FILLS if look != of["Export"]][:2]


def test_as_many_names_as_there_are_fills() -> None:
    """Names differ in colour or hatch as long as there are any."""
    of = fills([operation(f"{number}") for number in range(len(FILLS))])

    assert len(set(of.values())) == len(FILLS) >= 36


def test_more_names_than_fills() -> None:
    """More names than fills have them in turn; a kind keeps its own to itself."""
    of = fills([operation("Export"), *(operation(f"{number}") for number in range(2_000))])

    assert len(of) == 2_001
    assert list(of.values()).count(of["Export"]) == 1


def test_nothing() -> None:
    """No operation has no colour."""
    assert fills([]) == {}


class TestPackages:
    def test_known_ones(self) -> None:
        """The program's own code and known packages always have the same fill."""
        of = package_fills(["somewhere", "torch", ""])

        assert (of[""], of["torch"]) == (package_fills([""])[""], package_fills(["torch"])["torch"])

    def test_program_stands_out(self) -> None:
        """No package has the colour of the program's own code, even if that is not there."""
        of = package_fills([f"p{number}" for number in range(50)])

        assert package_fills([""])[""].colour not in {fill.colour for fill in of.values()}

    def test_others(self) -> None:
        """The first packages have a plain colour each, the others one together."""
        of = list(package_fills([f"p{number}" for number in range(20)]).values())

        assert len(set(of[:8])) == 8
        assert set(of[8:]) == {OTHER_PACKAGES}
        assert not any(fill.hatch for fill in of)

    def test_readable(self) -> None:
        """Names can be read on every fill: the contrast is at least 4.5, as WCAG asks for."""
        packages = ["", "python", "torch", "openvino", "nncf", "transformers", "optimum", *"abc"]
        every = {*package_fills(packages).values(), REST, OTHER_PACKAGES}

        assert all(_contrast(fill.colour, fill.ink) >= 4.5 for fill in every)


def _contrast(one: str, other: str) -> float:
    light, dark = sorted((colours._luminance(one), colours._luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)
