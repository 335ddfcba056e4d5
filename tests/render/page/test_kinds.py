from __future__ import annotations

from typing import Any

import pytest

from nncftools.render.page import kinds
from nncftools.render.view import View
from nncftools.session.model import MappingsMoment
from tests.render.built_up import MAIN, built_up, group, mapped

VIEW = View(metrics=["rss"])


def panel(*mappings: MappingsMoment, view: View = VIEW, length_s: float = 10.0) -> list[dict[str, Any]]:
    """Return the parts of the panel of a run of so many seconds."""
    return kinds(built_up(([MAIN], 100), mappings=list(mappings)), view, length_s, 1)


def sizes(parts: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Return the MiB of each part by its name."""
    return {part["name"]: part["y"] for part in parts}


class TestKinds:
    def test_parts(self) -> None:
        """Each moment is a bar of the kinds; a file has its clean part and its private copies."""
        parts = panel(
            mapped(1.0, group("anonymous", 50), group("libraries", 20)),
            mapped(2.0, group("anonymous", 60), group("file", 100, "/m/model.bin", copied=10), group("shared", 5)),
        )

        assert sizes(parts) == {
            "anonymous": [50, 60],
            "copied from model.bin": [0, 10],
            "model.bin": [0, 90],
            "libraries": [20, 0],
            "shared memory": [0, 5],
        }
        assert [part["x"] for part in parts] == [[1.0, 2.0]] * 5

    def test_stacked(self) -> None:
        """A part begins where the one below ends, and the top is the memory of all processes."""
        parts = panel(mapped(1.0, group("anonymous", 50), group("libraries", 20), total=100))

        assert [(part["name"], part["base"], part["y"]) for part in parts] == [
            ("anonymous", [0], [50]),
            ("libraries", [50], [20]),
            ("processes that were not read", [70], [30]),
        ]

    def test_small_ones_are_summed(self) -> None:
        """What always holds less than 1 % is summed, and so are files beyond the five largest ones."""
        files = [group("file", 10 + place, f"/m/{place}.bin") for place in range(7)]
        parts = panel(mapped(1.0, group("anonymous", 500), group("stack", 0.5), group("libraries", 1), *files))

        assert sizes(parts)["other files"] == [21]
        assert sizes(parts)["other"] == [1.5]
        assert [name for name in sizes(parts) if name.endswith(".bin")] == [f"{place}.bin" for place in (6, 5, 4, 3, 2)]

    def test_no_time_is_made_up(self) -> None:
        """A bar is narrow and touches no other; of two moments that are too near, the one with more memory is drawn."""
        parts = panel(*(mapped(at_s, group("anonymous", size)) for at_s, size in ((1, 50), (1.01, 60), (1.05, 70))))

        assert (parts[0]["x"], parts[0]["y"]) == ([1.01, 1.05], [60, 70])
        assert parts[0]["width"] == pytest.approx([0.032, 0.032])

    @pytest.mark.parametrize("view", [VIEW, View(metrics=["rss"], from_zero=True)])
    def test_nothing(self, view: View) -> None:
        """Nothing is drawn where no mappings were read, or where memory counts from the first sample."""
        mappings = [mapped(1.0, group("anonymous", 50))] if view.from_zero else []

        assert panel(*mappings, view=view) == []
