"""One self-contained page: the picture, with the full row shown at each point, and a sortable table."""

from __future__ import annotations

import json
import pathlib
import re
from html import escape
from typing import TYPE_CHECKING

from nncftools.compression.checking import number
from nncftools.compression.columns import ERROR, INT4, INT8, RATE
from nncftools.compression.recommending import chosen, left_out_text
from nncftools.compression.table import cells, details
from nncftools.units import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nncftools.compression.recommending import Bounds
    from nncftools.compression.results import Comparison, Result

_TEMPLATE = pathlib.Path(__file__).with_name("page.html")
_UNSEEN = re.compile(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<metadata>.*?</metadata>|<!--.*?-->", re.DOTALL)
"""The parts of matplotlib's SVG that a page does not need, with the addresses in them."""

_ALL_DIGITS_FROM = 1e5


def page(
    comparisons: Sequence[Comparison], picture: bytes, bounds: Bounds | None = None, *, extra: bool = False
) -> str:
    """Return the page; ``picture`` is the SVG of the same results."""
    header, table = cells(comparisons, extra=extra)
    results = [result for comparison in comparisons for result in comparison.results]
    is_number = [
        all(number(cell.rstrip("%x")) is not None for cell in column if cell) for column in zip(*table, strict=True)
    ]
    kinds = [' class="number"' if right_aligned else "" for right_aligned in is_number]
    choices = [chosen(comparison, bounds) for comparison in comparisons] if bounds else []
    best = [choice.best for choice in choices]
    rows = [
        _row(place, result, zip(header, line, kinds, strict=True), is_best=any(result is one for one in best))
        for place, (result, line) in enumerate(zip(results, table, strict=True))
    ]
    title = " · ".join(comparison.title for comparison in comparisons)
    note = "Point at a mark to see its full row; click a heading to sort."
    for comparison, choice in zip(comparisons, choices, strict=False):
        left_out = f" ({left_out_text(choice)})" if choice.left_out else ""
        name = "none" if choice.best is None else choice.best.label
        note += f" {comparison.name}: {name} is the smallest with {bounds}{left_out}."
    parts = {
        "TITLE": _text(title),
        "NOTE": _text(note),
        "PICTURE": _UNSEEN.sub("", picture.decode()).strip(),
        "HEADER": "".join(_heading(name, kind) for name, kind in zip(header, kinds, strict=True)),
        "ROWS": "\n".join(rows),
        "DATA": _data([details(comparison, result) for comparison in comparisons for result in comparison.results]),
    }
    template = _TEMPLATE.read_text(encoding="utf-8")
    return re.sub("@([A-Z]+)@", lambda match: parts[match[1]], template)


def _heading(name: str, kind: str) -> str:
    order = ' aria-sort="ascending"' if name == ERROR else ""
    return f'<th scope="col"{kind}{order}><button type="button">{_text(name)}</button></th>'


def _row(place: int, result: Result, cells: Iterable[tuple[str, str, str]], *, is_best: bool) -> str:
    """Return a table row; ``cells`` are column names, texts and attributes."""
    classes = [*([] if result.is_pareto else ["dominated"]), *(["recommended"] if is_best else [])]
    row = result.row
    exact = {ERROR: result.error, RATE: result.rate, INT4: row.int4, INT8: row.int8}
    columns = "".join(
        f'<td{kind} data-value="{_text(repr(exact[name]) if name in exact else text)}">{_text(text)}</td>'
        for name, text, kind in cells
    )
    return f'<tr data-row="{place}" class="{" ".join(classes)}">{columns}</tr>'


def _text(text: str) -> str:
    return escape(printable(" ".join(text.split())))


def _data(rows: Sequence[dict[str, object]]) -> str:
    """Return the rows as JSON that cannot close its script element."""
    pairs = [[[name, _plain(value)] for name, value in row.items()] for row in rows]
    return json.dumps(pairs, ensure_ascii=True).replace("<", "\\u003c")


def _plain(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.5g}" if abs(value) < _ALL_DIGITS_FROM else f"{value:.0f}"
    return printable(str(value))
