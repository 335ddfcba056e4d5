from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from nncftools.render.colours import LOOKS, REST, looks
from nncftools.session.kinds import KINDS
from nncftools.session.phases import Phase

EVERY_COLOUR = sorted({look.colour for look in LOOKS})
SIGHT = {
    "of three colours": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "without red": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "without green": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "without blue": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039)),
}
"""Machado, Oliveira and Fernandes 2009, in linear RGB."""
OKABE_ITO = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#000000")


def phase(name: str, **fields: Any) -> Phase:  # noqa: ANN401 — any field of a phase
    """Return an operation of one second."""
    return Phase(name=name, start_s=0, end_s=1, **fields)


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


@pytest.mark.parametrize("look", [*LOOKS[: len(EVERY_COLOUR)], REST], ids=lambda look: look.colour)
def test_text_on_a_colour_is_readable(look: Any) -> None:  # noqa: ANN401 — a look
    """Black or white text on a colour has the contrast that WCAG asks for."""
    assert contrast(look.colour, look.ink) >= 4.5


def test_a_kind_has_its_colour_in_every_picture() -> None:
    """Whatever else was done, and in whichever order, a kind looks the same."""
    alone = looks([phase("Compilation", kind="Compilation")])
    among = looks([phase("mine"), phase("Saving", kind="Saving"), phase("Compilation", kind="Compilation")])

    assert alone["Compilation"] == among["Compilation"]


def test_every_kind_has_a_colour_of_its_own() -> None:
    """Kinds differ by colour alone."""
    of = looks([phase(kind) for kind in KINDS])

    assert len({look.colour for look in of.values()}) == len(KINDS)
    assert {look.hatch for look in of.values()} == {""}


@pytest.mark.parametrize("one", [phase("compilation"), phase("my model", kind="Compilation")])
def test_a_kind_is_known_by_its_name_or_field(one: Phase) -> None:
    """An operation is of a kind when its name says so in any case, or its mark."""
    assert looks([one])[one.name] == looks([phase("Compilation")])["Compilation"]


def test_an_unknown_kind_is_none() -> None:
    """A kind of another version is no kind: the operation is coloured by its name."""
    assert looks([phase("x", kind="Teleport")]) == looks([phase("x")])


def test_one_name_has_one_look() -> None:
    """Two operations of one name look the same, also when only one of them tells its kind."""
    of = looks([phase("x"), phase("x", kind="Saving"), phase("y")])

    assert of["x"] == looks([phase("Saving")])["Saving"]
    assert len(of) == 2


def test_other_names_take_what_is_left() -> None:
    """Names that are of no kind take other looks than the kinds that are there, in the order of appearance."""
    of = looks([phase("b"), phase("Export"), phase("a"), phase("b")])

    assert of["b"], of["a"] == [look for look in LOOKS if look != of["Export"]][:2]


def test_as_many_names_as_there_are_looks() -> None:
    """Names differ in colour or hatch as long as there are any."""
    of = looks([phase(f"{number}") for number in range(len(LOOKS))])

    assert len(set(of.values())) == len(LOOKS) >= 36


def test_more_names_than_looks() -> None:
    """More names than looks have them in turn; a kind keeps its own to itself."""
    of = looks([phase("Export"), *(phase(f"{number}") for number in range(2_000))])

    assert len(of) == 2_001
    assert list(of.values()).count(of["Export"]) == 1


def test_nothing() -> None:
    """No operation has no colour."""
    assert looks([]) == {}
