from __future__ import annotations

import csv
import pathlib

import pytest
from markdown_it import MarkdownIt

from nncftools.compression.outputs import cells, error_text, escaped, markdown, percent
from nncftools.compression.reading import FIGURES, PEAK, PEAK_OWNER
from tests.compression.made_up import EXPECTED, HEADER, MADE_UP, changed, compared, four, with_figures, written

HOSTILE = [
    "a | b",
    "a \\| b",
    "ends with \\",
    "two\nlines\r\n\r\nand more",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "&lt;b&gt;",
    "[link](javascript:alert(1))",
    "![picture](http://example.org/a.png)",
    "**bold** _it_ `code` ~~gone~~ $x$",
    "http://example.org and www.example.org",
    "a@example.org",
    "\x1b[31mred\x1b[0m\x07",
    "\u202etxet",
    "# head",
    "- item",
    "|---|",
    "<!-- comment",
]


def parsed(text: str) -> list[list[str]]:
    """Return the cells of a Markdown table as a reader sees them; fail on anything outside one table."""
    tokens = MarkdownIt("gfm-like", {"linkify": False, "html": True}).parse(text)
    kinds = [token.type for token in tokens]
    assert kinds[0] == "table_open" and kinds[-1] == "table_close" and kinds.count("table_open") == 1  # noqa: PT018 — one
    rows: list[list[str]] = []
    for token in tokens:
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline":
            assert {child.type for child in token.children or ()} <= {"text", "text_special", "html_inline"}
            rows[-1].append("".join(child.content for child in token.children or ()))
    return rows


def expected(path: pathlib.Path) -> list[list[str]]:
    """Return the cells of a published table."""
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    return [[name.replace(" ", "<br>") for name in header], *rows]


def test_table_of_made_up_results() -> None:
    """The table has exactly the expected cells."""
    assert parsed(markdown(*cells(compared(MADE_UP)))) == expected(EXPECTED)


def test_table_of_published_results(phi3: pathlib.Path) -> None:
    """The published table of Phi-3 follows from the published figures, cell by cell."""
    table = markdown(*cells(compared(phi3)))

    assert parsed(table) == expected(phi3.with_suffix(".expected.csv"))


def test_laid_out_as_upstream(phi3: pathlib.Path) -> None:
    """The table has the columns, the alignment and the end of the published one."""
    table = markdown(*cells(compared(phi3)))

    names = "%int4   | %int8   |   lora<br>rank | average<br>relative<br>error   | compression<br>rate   |"
    rules = ":--------|:--------|---------------:|:-------------------------------|:----------------------|"
    assert table.splitlines()[:2] == [f"| mode{' ' * 38}| {names}", f"|:{'-' * 42}|{rules}"]
    assert table.endswith("|")


def test_columns_are_aligned() -> None:
    """Every line of the source has the same length."""
    lines = markdown(*cells(compared(MADE_UP))).splitlines()

    assert len({len(line) for line in lines}) == 1
    assert lines[1].startswith("|:---")


def test_extra_columns() -> None:
    """Further columns appear unchanged when requested."""
    table = parsed(markdown(*cells(compared(MADE_UP), extra=True)))

    assert [row[-1] for row in table] == ["compression<br>time,<br>min", "0", "0.5", "60", "12.5", "90", "2"]


def test_known_columns_have_few_digits(tmp_path: pathlib.Path) -> None:
    """Figures of known further columns are rounded; an empty cell stays empty, and a text stays as it is."""
    (comparison,) = compared(with_figures(tmp_path / "a.csv", changes={"inference peak memory, MiB": "much"}))
    header, table = cells([comparison], extra=True)

    assert header[6:] == [PEAK.column, PEAK.high_column, *(figure.column for figure in FIGURES[1:]), PEAK_OWNER]
    assert table[0][6:] == ["", "", "much", "", "0.20000", "0.6000", "optimum-cli"]
    assert table[2][6:] == ["4300", "", "much", "12.35", "0.03000", "0.1500", "optimum-cli"]


def test_several_models(tmp_path: pathlib.Path) -> None:
    """With several models, a column names them."""
    header, rows = cells(compared(MADE_UP, written(tmp_path / "a.csv", four())))

    assert header[:2] == ["model", "mode"]
    assert [row[0] for row in rows] == ["Made-up-7b, made up, gs64"] * 6 + ["Made-up-7b, made up"] * 4


@pytest.mark.parametrize("text", HOSTILE)
def test_cell_cannot_break_out(tmp_path: pathlib.Path, text: str) -> None:
    """With any cell or column name, the table stays one table, and the cell is plain text."""
    rows = [{**one, "note": text} for one in changed(four(), 4, "mode", f"int4 {text}")]
    (comparison,) = compared(written(tmp_path / "a.csv", rows, [*HEADER, "note"]))
    table = parsed(markdown(*cells([comparison], extra=True)))
    shown = " ".join(text.split()).encode("unicode_escape").decode() if not text.isascii() or "\x1b" in text else None

    assert len(table) == 5
    assert {len(row) for row in table} == {7}
    assert table[1][-1] == (shown or " ".join(text.split()))
    assert not any(ord(letter) < 32 for row in table for cell in row for letter in cell)


def test_header_cannot_break_out() -> None:
    """A column's name is plain text, too, except for its line breaks."""
    table = parsed(markdown(["a | <b>", "c"], [["1", "2"]]))

    assert table == [["a<br>|<br><b>", "c"], ["1", "2"]]


def test_usual_names_stay_readable() -> None:
    """Common mode names need no escapes in the source."""
    assert escaped("int4_asym + scale estimation (gs64), 80% #1") == "int4_asym + scale estimation (gs64), 80% #1"


@pytest.mark.parametrize(("share", "text"), [(0, "0%"), (1, "100%"), (0.4, "40%"), (0.07, "7%"), (0.125, "12.5%")])
def test_percent(share: float, text: str) -> None:
    """A share has a decimal only when it needs one."""
    assert percent(share) == text


@pytest.mark.parametrize(("error", "text"), [(0, "0.0%"), (-0.0001, "0.0%"), (-0.012, "-1.2%"), (192.6412, "19264.1%")])
def test_error(error: float, text: str) -> None:
    """An error has one decimal, and zero has no sign."""
    assert error_text(error) == text
