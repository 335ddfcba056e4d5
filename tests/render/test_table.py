from __future__ import annotations

import re
from typing import Any

import pytest

from nncftools.analysis.operation import Figures, Operation
from nncftools.render.page import report
from nncftools.render.panels import page
from nncftools.render.table import NOTE, change_text, has_estimates
from nncftools.render.text import notebook_cell
from nncftools.units import MemoryUnit
from tests.made_up import MIB
from tests.render import golden
from tests.render.page_content import note_of, rows_of

UNIT = MemoryUnit.MiB


@pytest.mark.parametrize(
    ("start", "end", "text"), [(False, False, "+100.0"), (True, False, "≈+100.0"), (False, True, "≈+100.0")]
)
def test_change(start: bool, end: bool, text: str) -> None:  # noqa: FBT001 — parameters of a test
    """A change is the end minus the start; it is an estimate if one of both is."""
    of = Figures(100.0 * MIB, 200.0 * MIB, start_is_estimate=start, end_is_estimate=end)

    assert change_text(of, UNIT.text) == text


def test_unknown_change() -> None:
    """Without a start there is no change."""
    assert change_text(Figures(None, 1.0), UNIT.text) == "–"


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ({}, False),
        ({"rss": Figures(1.0, 2.0)}, False),
        ({"rss": Figures(1.0, 2.0, start_is_estimate=True)}, True),
        ({"rss": Figures(1.0, 2.0, end_is_estimate=True)}, True),
    ],
)
def test_has_estimates(figures: dict[str, Figures], expected: bool) -> None:  # noqa: FBT001 — a parameter of a test
    """An estimate at the start or at the end needs an explanation."""
    assert has_estimates([Operation(name="a", start_s=0, end_s=1, figures=figures)]) is expected


def test_notebook() -> None:
    """A notebook has estimates and their explanation."""
    text = notebook_cell(golden.run(), golden.VIEW)

    assert re.search(r"\| +≈-600\.0 \|", text)
    assert NOTE in text


def test_page() -> None:
    """So has the page."""
    text = report(golden.run(), golden.VIEW).decode()

    assert rows_of(text, "operations")[1].cells[2:5] == ["2,600.0", "≈-600.0", "5.00 s"]
    assert note_of(text, "operations") == NOTE


def test_picture() -> None:
    """In a picture, estimates are marked, too."""
    texts: list[Any] = page(golden.run(), golden.VIEW).axes[-1].texts
    shown = {text.get_text() for text in texts}

    assert any(text.startswith("≈") for text in shown)
