"""What a page holds, read back from its HTML."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any, NamedTuple


class PageRow(NamedTuple):
    """A row of a table in the page."""

    cells: list[str]
    attributes: dict[str, str]
    details: str

    @property
    def depth(self) -> int:
        """How deep it is in the tree."""
        return int(self.attributes["data-depth"])


def data_of(text: str) -> Any:  # noqa: ANN401 — JSON
    """Return the figures that the page's program draws."""
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    return json.loads(found)


def rows_of(text: str, table: str) -> list[PageRow]:
    """Return the rows of a table."""
    body = re.search(rf'<table id="{table}".*?<tbody>(.*?)</tbody>', text, re.DOTALL)
    assert body is not None
    rows = []
    for attributes, content in re.findall(r"<tr (.*?)>(.*?)</tr>", body[1], re.DOTALL):
        details = re.search("<small>(.*?)</small>", content, re.DOTALL)
        cells = re.findall("<td.*?>(.*?)</td>", re.sub("<small>.*?</small>", "", content), re.DOTALL)
        rows.append(
            PageRow(
                [text_of(cell) for cell in cells],
                {name: unescape(value) for name, value in re.findall('([a-z-]+)="(.*?)"', attributes)},
                "" if details is None else text_of(details[1]),
            )
        )
    return rows


def note_of(text: str, table: str) -> str:
    """Return what stands below a table."""
    found = re.search(rf'<table id="{table}".*?</table></div><p class="more">(.*?)</p>', text, re.DOTALL)
    assert found is not None
    return text_of(found[1])


def text_of(content: str) -> str:
    """Return HTML without its tags."""
    return unescape(re.sub("<[^>]*>", "", content))


def texts_of(text: str) -> str:
    """Return what a reader sees without the flame graph: a line for each part of the page and each row of a table."""
    visible = re.sub(r"<(script|style|title|select|iframe).*?</\1>", "", text, flags=re.DOTALL)
    visible = re.sub(r"</t[dh]>", "  ", re.sub(r"</(p|dd|h1|h2|tr|li)>", "\n", visible))
    data = data_of(text)
    written = [hover for trace in data["chart"]["traces"] for hover in trace.get("hovertext", [])]
    return text_of("\n".join([visible, *written]).replace("<br>", "\n"))
