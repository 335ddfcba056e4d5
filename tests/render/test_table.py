from __future__ import annotations

import json
from math import inf
from typing import Any

import pytest

from nncftools.render.notebook import cell
from nncftools.render.page import report
from nncftools.render.panels import page
from nncftools.render.table import NOTE, change_text, finite, has_brackets, level_text
from nncftools.session.operation import Bounds, Figures, Operation
from nncftools.units import MemoryUnit
from tests.made_up import MIB
from tests.render import golden

UNIT = MemoryUnit.MiB


@pytest.mark.parametrize(
    ("size", "bounds", "text"),
    [
        (None, None, "–"),
        (352 * MIB, None, "352.0"),
        (360 * MIB, Bounds(352 * MIB, 391 * MIB), "352–391"),
        (360 * MIB, Bounds(352 * MIB, None), "≥352"),
        (3 * MIB, Bounds(0, 9.25 * MIB), "0.0–9.2"),
    ],
)
def test_level(size: float | None, bounds: Bounds | None, text: str) -> None:
    """A known size is as in every table; otherwise both bounds stand there, or the known one."""
    assert level_text(size, bounds, UNIT, UNIT.text) == text


@pytest.mark.parametrize(
    ("start", "end", "text"),
    [
        (None, None, "+100.0"),
        (Bounds(90 * MIB, 110 * MIB), None, "+90 to +110"),
        (None, Bounds(50 * MIB, 300 * MIB), "-50 to +200"),
        (None, Bounds(50 * MIB, None), "≥-50"),
        (Bounds(50 * MIB, None), None, "≤+150"),
        (Bounds(50 * MIB, None), Bounds(50 * MIB, None), "–"),
    ],
)
def test_change(start: Bounds | None, end: Bounds | None, text: str) -> None:
    """A change is the end minus the start, with a sign, also of each bound."""
    of = Figures(100.0 * MIB, 200.0 * MIB, start_bounds=start, end_bounds=end)

    assert change_text(of, UNIT, UNIT.text) == text


def test_unknown_change() -> None:
    """Without a start there is no change."""
    assert change_text(Figures(None, 1.0), UNIT, UNIT.text) == "–"


@pytest.mark.parametrize(
    ("bounds", "written"),
    [(None, None), (Bounds(1.0, 2.0), [1, 2]), (Bounds(-inf, 2.0), [None, 2]), (Bounds(1.0, None), [1, None])],
)
def test_finite(bounds: Bounds | None, written: list[int | None] | None) -> None:
    """Documents have whole bytes, and null for a bound that is not known."""
    assert finite(bounds) == written


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ({}, False),
        ({"rss": Figures(1.0, 2.0)}, False),
        ({"rss": Figures(1.0, 2.0, start_bounds=Bounds(0, 0))}, True),
        ({"rss": Figures(1.0, 2.0, end_bounds=Bounds(0, None))}, True),
    ],
)
def test_has_brackets(figures: dict[str, Figures], expected: bool) -> None:  # noqa: FBT001 — a parameter of a test
    """Bounds at the start or at the end need an explanation."""
    assert has_brackets([Operation(name="a", start_s=0, end_s=1, figures=figures)]) is expected


def test_notebook() -> None:
    """A notebook has bounds and their explanation."""
    text = cell(golden.run(), golden.VIEW)

    assert ">-700 to -500</td>" in text
    assert f"<div>{NOTE}</div>" in text


def test_page() -> None:
    """So has the page."""
    text = report(golden.run(), golden.VIEW).decode()
    data = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
    table = data["tables"]["operations"]

    assert table["rows"][1]["cells"][2:5] == ["2,600.0", "-700 to -500", "5.00 s"]
    assert table["more"] == NOTE


def test_picture() -> None:
    """In a picture, bounds take no more room than other figures of memory."""
    texts: list[Any] = page(golden.run(), golden.VIEW).axes[-1].texts
    (bounds, change, known) = (
        next(text for text in texts if text.get_text() == of) for of in ("1,400–1,500", "+1,100 to +1,400", "2,600")
    )

    assert 5 < bounds.get_fontsize() < known.get_fontsize()
    assert 5 < change.get_fontsize() < known.get_fontsize()
