"""The colour of each operation, the same in all pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, product

from nncftools.session.operation import KINDS, Operation, kind_of


@dataclass(frozen=True)
class Fill:
    """How an operation is filled."""

    colour: str
    """``#rrggbb``."""
    hatch: str = ""
    """In Matplotlib's notation."""

    @property
    def ink(self) -> str:
        """The colour of readable text on it, by the contrast ratio of WCAG."""
        light = _luminance(self.colour)
        return "#000000" if (light + _GLARE) ** 2 > (1 + _GLARE) * _GLARE else "#ffffff"


_COLOURS = ("#56B4E9", "#E69F00", "#009E73", "#0072B2", "#CC79A7", "#D55E00", "#F0E442", "#332288", "#3B3B3B")
"""In the order of the kinds: seven of Okabe and Ito, Tol's indigo, and a grey for Okabe and Ito's black. For every kind
of colour blindness any two differ as much as the two closest of Okabe and Ito do."""
FILLS = tuple(Fill(colour, hatch) for hatch, colour in product(("", "///", "...", "xxx"), _COLOURS))
"""All fills that a reader can distinguish: first those of the kinds, then each colour with a hatch."""
PATTERNS = {"": "", "///": "/", "...": ".", "xxx": "x"}
"""The hatches in plotly's notation."""
REST = Fill("#BDBDBD")
"""For the sum of several operations, and for memory whose code is unknown."""
OTHER_PACKAGES = Fill("#8A9BA8")
_OF_PACKAGES = {
    "": Fill("#E69F00"),
    "python": Fill("#E4E1D6"),
    "torch": Fill("#56B4E9"),
    "openvino": Fill("#CC79A7"),
    "nncf": Fill("#009E73"),
    "transformers": Fill("#F0E442"),
    "optimum": Fill("#0072B2"),
}
"""Always the same: the program's own code, the standard library, and the packages that a run most likely uses."""
_GLARE = 0.05
_BENT_FROM = 0.04045


def fills(operations: Sequence[Operation]) -> dict[str, Fill]:
    """Return the fill of every operation by its name.

    An operation of a kind has the kind's fill. The others have, in turn, the fills that the kinds in ``operations``
    leave; when there are more names than fills, fills repeat.
    """
    kinds: dict[str, str | None] = {}
    for operation in operations:
        kind = operation.kind if operation.kind in KINDS else kind_of(operation.name)
        kinds[operation.name] = kinds.get(operation.name) or kind
    by_kind = dict(zip(KINDS, FILLS, strict=False))
    taken = {by_kind[kind] for kind in kinds.values() if kind is not None}
    free = cycle(fill for fill in FILLS if fill not in taken)
    return {name: next(free) if kind is None else by_kind[kind] for name, kind in kinds.items()}


def package_fills(packages: Sequence[str]) -> dict[str, Fill]:
    """Return the fill of every package in a flame graph; empty stands for the program's own code.

    Packages without a fill of their own have, in turn, the plain ones that the known ones in ``packages`` leave; those
    that come later than these have one fill together.
    """
    taken = {_OF_PACKAGES[package] for package in ("", *packages) if package in _OF_PACKAGES}
    free = (fill for fill in FILLS if fill not in taken and not fill.hatch)
    return {package: _OF_PACKAGES.get(package) or next(free, OTHER_PACKAGES) for package in packages}


def _luminance(colour: str) -> float:
    """Return the relative luminance as WCAG defines it: 0 is black, 1 is white."""
    levels = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    red, green, blue = (of / 12.92 if of <= _BENT_FROM else float(((of + 0.055) / 1.055) ** 2.4) for of in levels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
