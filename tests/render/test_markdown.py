from __future__ import annotations

import html
import re

import pytest
from markdown_it import MarkdownIt

from nncftools.markdown import code, text
from nncftools.render.text import markdown_report as report
from nncftools.render.view import View
from nncftools.session.model import Mark
from tests.made_up import mib, session

HOSTILE = "</td><script>alert(1)</script> `a` ``b`` | *c* _d_ [e](https://evil.example) ![f](g) &lt; $h$ ~~i~~ \\ j"
VIEW = View(metrics=["rss"])


def shown(markdown: str) -> str:
    """Return the page that a Markdown renderer makes of it, HTML in it passed on as GitHub does."""
    return MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(markdown)


def words(page: str) -> str:
    """Return what a reader sees."""
    return html.unescape(re.sub("<[^>]*>", "", page)).strip()


def cells(page: str) -> list[list[list[str]]]:
    """Return tables as rows of what a reader sees."""
    tables = re.findall("<table>.*?</table>", page, re.DOTALL)
    rows = [re.findall("<tr>.*?</tr>", table, re.DOTALL) for table in tables]
    return [[[words(cell) for cell in re.findall("<t[hd].*?</t[hd]>", row, re.DOTALL)] for row in of] for of in rows]


@pytest.mark.parametrize(
    "plain",
    [
        HOSTILE,
        "|",
        "a|b",
        "`",
        "``",
        "`a",
        "a`|`b",
        "\\|",
        "@everyone",
        "#12 `x`",
        "a  b\nc",
        "www.evil.example",
        "<!--",
    ],
)
def test_text_shows_as_it_is(plain: str) -> None:
    """A cell shows any name literally."""
    page = shown(f"| a | b |\n| --- | --- |\n| {text(plain)} | {code(plain)} |")
    row = cells(page)[0][1]

    assert row == [" ".join(plain.split())] * 2
    assert not re.search("<(script|a|img|em|strong|s)[ >]", page)


@pytest.mark.parametrize("plain", ["int4_asym + scale estimation (gs64), 80%", "run.json, MiB/s: 1,024.5 (+3%)", "é_1"])
def test_usual_names_stay_readable(plain: str) -> None:
    """Common names need no escapes in the source."""
    assert text(plain) == plain


@pytest.mark.parametrize("plain", ["@everyone", "fix #12", "GH-7", "https://evil.example"])
def test_nobody_is_called(plain: str) -> None:
    """What GitHub would make a mention, a reference or a link of is code."""
    assert text(plain) == f"`{plain}`"


def test_many_operations() -> None:
    """Of very many operations the longest are listed: a comment on GitHub holds 65,536 characters."""
    marks = [Mark(name=f"{place % 50} {'x' * 500}", start_s=place, end_s=place + 1) for place in range(1000)]
    markdown = report(session({"rss": mib(1, 2)}, duration_s=1000.0, marks=marks), VIEW)

    assert "… and 940 smaller ones" in markdown
    assert len(markdown) < 30_000
