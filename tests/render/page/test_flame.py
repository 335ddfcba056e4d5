from __future__ import annotations

from typing import Any

import pytest

from nncftools.render.colours import REST
from nncftools.render.stacks import flame
from nncftools.render.view import View
from nncftools.session.model import Frame, Snapshots
from nncftools.session.session import Session
from nncftools.units import MemoryUnit
from tests.made_up import MIB, session
from tests.render.built_up import IMPORT, LOAD, MACHINERY, MAIN, TRACE, built_up

VIEW = View(metrics=["rss"])


def boxes(of: Session) -> list[tuple[int | None, str, str, float]]:
    """Return the boxes as the number of the enclosing one, name, place and MiB."""
    found = drawn(of)
    sizes = [size / MIB for size in found["size"]]
    return list(zip(found["parent"], found["name"], found["place"], sizes, strict=True))


def drawn(of: Session, view: View = VIEW) -> dict[str, Any]:
    """Return the data of the graph."""
    found = flame(of, view)
    assert found is not None
    return found


class TestFlame:
    def test_tree(self) -> None:
        """Each function is a part of its caller; the first box is the peak, the import system is left out."""
        found = boxes(built_up(([MAIN, LOAD], 200), ([MAIN, MACHINERY, IMPORT], 100)))

        assert [box[:3] for box in found] == [
            (None, "RSS at its peak", ""),
            (0, "main", "me/export.py:10"),
            (1, "load", "me/export.py:20"),
            (1, "import torch", "torch/__init__.py:1"),
        ]
        assert found[0][3] == 300
        assert sum(box[3] for box in found[2:]) == pytest.approx(300)

    def test_certain(self) -> None:
        """A box says which part of it is certain; the sentence above says it for the whole peak."""
        found = drawn(built_up(([MAIN, LOAD], 200), ([MAIN, TRACE], 100)))

        assert found["certain"][0] == found["size"][0]
        assert all(certain < size for certain, size in zip(found["certain"][1:], found["size"][1:], strict=True))
        assert found["text"] == (
            "Which code made memory rise to its peak of 300.0 MiB: "
            "294.0 MiB certain down to the innermost function, 6.0 MiB at the likelier of two places."
        )

    def test_without_stack(self) -> None:
        """What has no stack is grey and belongs to no package."""
        found = drawn(built_up(([MAIN], 200), ([], 50), inherited=30))
        grey = [name for name, package in zip(found["name"], found["package"], strict=True) if package is None]

        assert grey[0] == "RSS at its peak"
        assert set(grey[1:]) == {"not seen", "shared with the parent process, at most"}
        assert found["rest"]["colour"] == REST.colour

    def test_packages(self) -> None:
        """The package with the largest box is first; a package has a name, its colour and a readable ink."""
        found = drawn(built_up(([MAIN, LOAD], 200), ([MAIN, TRACE], 100)))

        assert found["packages"] == [
            {"name": "the program itself", "colour": "#E69F00", "ink": "#000000", "other": False},
            {"name": "torch", "colour": "#56B4E9", "ink": "#000000", "other": False},
        ]

    def test_small_boxes_are_summed(self) -> None:
        """What holds less than 0.2 % of the peak is one box, however many there are."""
        small = (([MAIN, Frame(f"f{place}", f"/x/{place}.py", 1)], 0.01) for place in range(20))
        found = boxes(built_up(*small, ([MAIN, LOAD], 1000)))

        assert [box[1] for box in found] == ["RSS at its peak", "main", "… 20 more", "load"]
        assert found[2][0] == 1

    def test_very_many(self) -> None:
        """At most 1,500 functions are drawn alone, and the sum is kept."""
        stacks = [[Frame(f"{branch}.{place}", "/x.py", 1) for place in range(40)] for branch in range(100)]
        found = boxes(built_up(*((stack, 1) for stack in stacks)))

        assert 1500 <= len(found) <= 1700
        assert all(box[1].endswith(" more") for box in found if box[1].startswith("…"))
        assert sum(box[3] for box in found if box[0] == 0) == pytest.approx(100)

    def test_very_deep(self) -> None:
        """Of a stack of 5,000 frames the outer ones are drawn."""
        deep = [Frame(f"f{place}", f"/x/{place}.py", 1) for place in range(5000)]
        found = boxes(built_up((deep, 100)))

        assert len(found) == 1501
        assert found[1498][:2] == (1497, "f1497")

    def test_unit(self) -> None:
        """Sizes are bytes; the page shows them in the unit of the view."""
        found = drawn(built_up(([MAIN], 100)), View(metrics=["rss"], unit=MemoryUnit.GiB))

        assert (found["unit"], found["factor"], found["digits"]) == ("GiB", 2**30, 3)

    @pytest.mark.parametrize("of", [session(), session(snapshots=Snapshots(missing="why"))])
    def test_nothing_seen(self, of: Session) -> None:
        """Without stacks there is no graph."""
        assert flame(of, VIEW) is None
