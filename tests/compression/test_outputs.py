from __future__ import annotations

import csv
import html
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from nncftools.compression import visualize
from nncftools.compression.outputs import (
    Request,
    cells,
    chart,
    describe_answers,
    make,
    markdown,
    page,
    percent,
)
from nncftools.compression.picture import draw, render
from nncftools.compression.reading import (
    LAMBADA_ACCURACY,
    STANDARD,
    ResultsError,
)
from nncftools.compression.results import error_text, parse_bounds
from nncftools.errors import NncfToolsError
from tests.browser import browser
from tests.compression.made_up import (
    EXPECTED,
    HEADER,
    MADE_UP,
    changed,
    compared,
    four,
    row,
    without_int8,
    written,
)

VERDICT = "compress: out of memory, the limit was 8 GiB | at 3 s"


def with_failure(folder: Path) -> Path:
    """Write the made-up results with a configuration that failed, whose size and quality are unknown."""
    with MADE_UP.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    failed = {**dict.fromkeys(rows[0], ""), next(iter(rows[0])): next(iter(rows[0].values())), "mode": "int4 + gptq"}
    failed |= {"plot name": "no room", "failed": VERDICT}
    path = folder / "a.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0], "failed"], restval="")
        writer.writeheader()
        writer.writerows([rows[0], failed, *rows[1:]])
    return path


def test_failed_row_is_listed_under_the_table(tmp_path: Path) -> None:
    """A row with a verdict needs no figures; it is under the table with its verdict, and nowhere else."""
    outcome = make(Request([with_failure(tmp_path)], tmp_path / "out", ("svg",), STANDARD, extra=True))
    table, _, listed = (tmp_path / "out" / "a.md").read_text().partition("\n\nFailed:\n\n")
    (comparison,) = outcome.comparisons

    assert "no room" not in [result.label for result in comparison.results]
    assert listed == "- int4 + gptq (no room): compress: out of memory, the limit was 8 GiB \\| at 3 s"
    assert "failed" not in table
    assert [failure.verdict for failure in comparison.model.failures] == [VERDICT]


def test_model_whose_rows_all_failed_is_refused(tmp_path: Path) -> None:
    """It would vanish without a word: the error has the model and its first verdict."""
    path = with_failure(tmp_path)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text(lines[0] + lines[2], encoding="utf-8")

    with pytest.raises(ResultsError, match=r"each row of model .* has failed; the first verdict is 'compress: out of"):
        make(Request([path], tmp_path / "out", ("svg",), STANDARD))


def names(folder: Path) -> list[str]:
    """Return the names of a folder's files."""
    return sorted(path.name for path in folder.iterdir())


class TestVisualize:
    def test_writes_table_and_picture(self, tmp_path: Path) -> None:
        """The function writes a table and a picture named like the input, and creates the folder."""
        files = visualize(str(MADE_UP), tmp_path / "new" / "out")

        assert [path.name for path in files] == ["made_up_compression.md", "made_up_compression.png"]
        assert names(tmp_path / "new" / "out") == ["made_up_compression.md", "made_up_compression.png"]
        assert files[1].read_bytes().startswith(b"\x89PNG")

    @pytest.mark.long
    def test_notes_are_warnings(self, tmp_path: Path) -> None:
        """A note is a warning at the line of the call; with lenient, a missing mode is no note."""
        path = written(tmp_path / "a.csv", without_int8())
        with pytest.warns(UserWarning, match="^Made-up-7b: no row with int8; the other rows are compared$") as caught:
            visualize(path)

        assert caught[0].filename == __file__
        assert visualize(path, lenient=True) == [tmp_path / "a.md", tmp_path / "a.png"]

    def test_errors_are_builtin(self, tmp_path: Path) -> None:
        """Every error is a RuntimeError; without the input, it is a FileNotFoundError too."""
        bad = written(tmp_path / "a.csv", four()[1:])
        good = written(tmp_path / "b.csv", four())
        huge = written(tmp_path / "c.csv", changed(four(), 2, "model size, Gb", "1e300"))
        (tmp_path / "d.csv").write_bytes(b"\x00")
        wrong = [(bad, ""), (huge, ""), (tmp_path / "d.csv", ""), (tmp_path, ""), (good, good), (tmp_path / "none", "")]
        errors = []
        for source, folder in wrong:
            with pytest.raises(RuntimeError) as caught:
                visualize(source, folder)
            errors.append(caught.value)

        assert [isinstance(error, NncfToolsError) for error in errors] == [True] * 6
        assert [isinstance(error, FileNotFoundError) for error in errors] == [False] * 5 + [True]


class TestMake:
    def test_all_or_nothing(self, tmp_path: Path) -> None:
        """When one file cannot be written, none is."""
        path = written(tmp_path / "a.csv", four())
        (tmp_path / "a.png").mkdir()
        with pytest.raises(NncfToolsError, match=r"a\.png': Is a directory"):
            make(Request([path]))

        assert names(tmp_path) == ["a.csv", "a.png"]

    def test_baseline_of_zero(self, tmp_path: Path) -> None:
        """A column in which the baseline has 0 has no relative error: a note names it, and the rest is drawn."""
        path = written(tmp_path / "a.csv", changed(four(), 2, "lambada-openai, acc", "0"))
        outcome = make(Request([path], lenient=True, formats=()))

        assert outcome.notes == [
            "the error is the average of wikitext, word perplexity; lambada-openai, perplexity; WWB, similarity",
            f"lambada-openai, acc is left out of the error: the baseline of {str(path)!r} has 0",
        ]
        assert [result.error for result in outcome.comparisons[0].results] == [0, 0, 0, 0]

    def test_nothing_to_compare(self, tmp_path: Path) -> None:
        """Without any other column, the message names the column, and nothing is written."""
        header = [*HEADER[:7], "score", "score stderr"]
        path = written(tmp_path / "a.csv", [{**one, "score": "0"} for one in four()], header)
        with pytest.raises(ResultsError, match=r"no metric can be compared; score is left out .*a\.csv' has 0$"):
            make(Request([path]))

        assert list(tmp_path.iterdir()) == [path]

    def test_chosen_column_is_not_left_out(self, tmp_path: Path) -> None:
        """A column that was named is refused: its baseline cannot be 0."""
        path = written(tmp_path / "a.csv", changed(four(), 2, "lambada-openai, acc", "0"))
        with pytest.raises(ResultsError, match="the baseline cannot be 0"):
            make(Request([path], metrics=(LAMBADA_ACCURACY,)))

    @pytest.mark.parametrize("cell", ["", "-0.1"])
    def test_row_of_a_sweep_without_a_figure(self, tmp_path: Path, cell: str) -> None:
        """A column of a sweep's file is left out if a row has no number of at least 0; any other file is refused."""
        cells = [{**one, "score": "0.5", "failed": ""} for one in four()]
        header = [*HEADER, "score", "score stderr", "failed"]
        path = written(tmp_path / "a.csv", changed(cells, 4, "score", cell), header)
        outcome = make(Request([path], formats=()))

        why = f"row 4 of {str(path)!r} has no number of at least 0"
        assert outcome.notes[-1] == f"score is left out of the error: {why}"
        with pytest.raises(ResultsError, match=f"row 4, column 'score'.* found .*{cell or 'nothing'}"):
            make(Request([written(tmp_path / "b.csv", changed(cells, 4, "score", cell), header[:-1])]))


HOSTILE = "</script><script>window.injected = 1</script><img src=x onerror='window.injected = 1'>\x1b[31m"
PROBE = """
const found = {injected: window.injected ?? null, points: {}, orders: {}, title: document.title};
for (const point of document.querySelectorAll("#picture .point")) {
  point.scrollIntoView({block: "center"});
  const box = point.getBoundingClientRect();
  const left = box.left + box.width / 2, top = box.top + box.height / 2;
  const hit = document.elementFromPoint(left, top)?.closest(".point");
  hit?.dispatchEvent(new MouseEvent("mousemove", {clientX: left, clientY: top, bubbles: true}));
  const tip = document.getElementById("tip");
  const box_of_tip = tip.getBoundingClientRect();
  found.points[point.id] = {
    hit: hit?.id ?? null, shown: !tip.hidden,
    inside: box_of_tip.left >= 0 && box_of_tip.right <= innerWidth && box_of_tip.bottom <= innerHeight,
    names: [...tip.querySelectorAll("dt")].map(e => e.textContent),
    values: [...tip.querySelectorAll("dd")].map(e => e.textContent),
    lines: [...document.querySelectorAll("tr.on")].map(e => Number(e.dataset.row)),
  };
  point.dispatchEvent(new MouseEvent("mouseleave"));
  found.points[point.id].gone = tip.hidden && !document.querySelector(".on");
}
document.querySelectorAll("th button").forEach((button, column) => {
  const order = () => [...document.querySelectorAll("tbody tr")].map(line => line.cells[column].textContent);
  button.click();
  const first = order();
  button.click();
  found.orders[button.textContent] = [first, order(), button.parentElement.getAttribute("aria-sort")];
});
found.paper = getComputedStyle(document.body).backgroundColor;
found.filter = getComputedStyle(document.querySelector("#picture svg")).filter;
const result = document.createElement("pre");
result.id = "result";
result.textContent = JSON.stringify(found);
document.body.append(result);
"""


def made(*paths: Path, extra: bool = False) -> str:
    """Return the page of results."""
    comparisons = compared(*paths)
    return page(comparisons, render(draw(comparisons), "svg"), None, extra=extra)


def hostile(folder: Path) -> Path:
    """Write results whose texts try to become part of the page."""
    rows = [{**one, "note": HOSTILE} for one in changed(four(), 4, "plot name", HOSTILE)]
    rows = [{**one, HEADER[0]: HOSTILE, "mode": f"{one['mode']} {HOSTILE}"} for one in rows]
    return written(folder / "a.csv", rows, [*HEADER, "note", f"{HOSTILE} column"])


class TestAnswers:
    @pytest.mark.parametrize(
        "rows, bound, answer",
        [
            ([row("fp32"), row("int8")], "error<5%", "int8 is the smallest with error below 5%: error 0.0%, 2 Gb, "),
            ([row("fp32")], "error<=5%", "The uncompressed model (fp32) is the smallest with error up to 5%: error "),
            (
                [row("fp32"), row("none", **{"model size, Gb": 4})],
                "error<=5%",
                "The uncompressed model (none) is the smallest with error up to 5%: error 0.0%, 4 Gb, 2.0x smaller",
            ),
            ([row("fp32"), row("int8")], "size<1GiB", "No model has size below 1 GiB"),
            (
                [row("fp32"), row("int4 + awq + gptq", **{"plot name": "60% int4"})],
                "error<=5%",
                "int4 with awq and gptq (60% int4) is the smallest with error up to 5%: ",
            ),
        ],
    )
    def test_sentence(self, tmp_path: Path, rows: list[dict[str, str]], bound: str, answer: str) -> None:
        """The sentence names the smallest model as a reader would; a model that is called none is uncompressed."""
        comparisons = compared(written(tmp_path / "a.csv", rows))

        assert describe_answers(comparisons, parse_bounds(bound))[0].startswith(answer)


class TestPage:
    @pytest.mark.long
    def test_loads_nothing(self) -> None:
        """The page contains no address but the namespaces of SVG, and denies itself network access."""
        text = made(MADE_UP)

        assert set(re.findall(r"https?://[^\s\"'<]+", text)) <= {
            "http://www.w3.org/2000/svg",
            "http://www.w3.org/1999/xlink",
        }
        assert "default-src 'none'" in text
        assert not re.search(r"<(link|iframe|img|object)|@import|url\((?!#)", text)

    def test_texts_stay_texts(self, tmp_path: Path) -> None:
        """Texts of the file become neither elements nor control characters."""
        text = made(hostile(tmp_path), extra=True)

        assert text.count("<script") == 2
        assert "<img" not in text
        assert "\x1b" not in text


def in_browser(text: str, folder: Path, *more: str) -> dict[str, Any]:
    """Open a copy of a page with an embedded probe in headless Chromium; return the probe's result."""
    copy = folder / "page.html"
    copy.write_text(text.replace("</body>", f"<script>{PROBE}</script></body>"), encoding="utf-8")
    switches = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
    switches += ["--disable-background-networking", "--disable-component-update", "--window-size=1200,1300"]
    command = [browser(), *switches, *more, f"--user-data-dir={folder / 'profile'}", "--dump-dom", copy.as_uri()]
    dumped = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=120, check=True).stdout
    result = re.search(r'<pre id="result">(.*?)</pre>', dumped, re.DOTALL)
    assert result is not None, dumped[-500:]
    found: dict[str, Any] = json.loads(html.unescape(result[1]))
    return found


@pytest.mark.real
class TestInBrowser:
    def test_pointing_shows_all_of_a_row(self, tmp_path: Path) -> None:
        """The middle of every point is sensitive to the pointer; its full row is shown, then hidden again."""
        points = in_browser(made(MADE_UP), tmp_path)["points"]
        lora = dict(zip(points["row-2"]["names"], points["row-2"]["values"], strict=True))

        assert sorted(points) == [f"row-{number}" for number in range(1, 6)]
        for number, (name, point) in enumerate(sorted(points.items()), 1):
            assert (point["hit"], point["lines"]) == (name, [number])
            assert point["shown"] and point["inside"] and point["gone"]  # noqa: PT018 — one behaviour
        assert lora["mode"] == "int4 + scale estimation + lora correction"
        assert (lora["average relative error"], lora["on Pareto front"], lora["row"]) == ("0.03", "yes", "7")

    @pytest.mark.parametrize(
        "scheme, paper, filtered", [(0, "rgb(27, 27, 27)", True), (1, "rgb(255, 255, 255)", False)]
    )
    def test_dark_and_light(self, tmp_path: Path, scheme: int, paper: str, *, filtered: bool) -> None:
        """The page is as dark as the reader's system, and so is its picture, whose hues stay."""
        found = in_browser(made(MADE_UP), tmp_path, f"--blink-settings=preferredColorScheme={scheme}")

        assert found["paper"] == paper
        assert (found["filter"] != "none") == filtered

    def test_heading_sorts(self, tmp_path: Path) -> None:
        """A click on a heading sorts by that column, numbers by value, gaps last; the next click reverses it."""
        orders = in_browser(made(MADE_UP, extra=True), tmp_path)["orders"]

        assert orders["compression rate"][0] == ["1.0x", "4.0x", "5.0x", "6.4x", "8.0x", "8.0x"]
        assert orders["compression rate"][1] == ["8.0x", "8.0x", "6.4x", "5.0x", "4.0x", "1.0x"]
        assert orders["compression time, min"][0] == ["0", "0.5", "2", "12.5", "60", "90"]
        assert orders["lora rank"][:2] == [["64", "", "", "", "", ""]] * 2
        assert orders["mode"][0][0] == "fp32"
        assert {order[2] for order in orders.values()} == {"descending"}

    def test_texts_stay_texts(self, tmp_path: Path) -> None:
        """Nothing in a cell or heading is executed."""
        found = in_browser(made(hostile(tmp_path), extra=True), tmp_path)
        shown = [value for point in found["points"].values() for value in point["values"]]

        assert found["injected"] is None
        assert HOSTILE.replace("\x1b", "\\x1b") in shown
        assert len(found["points"]) == 3


TABLE_HOSTILE = [
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
            assert {child.type for child in token.children or ()} <= {
                "text",
                "text_special",
                "html_inline",
                "code_inline",
            }
            rows[-1].append("".join(child.content for child in token.children or ()))
    return rows


def expected(path: Path) -> list[list[str]]:
    """Return the cells of a published table."""
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    return [[name.replace(" ", "<br>") for name in header], *rows]


def test_table_of_published_results(phi3: Path) -> None:
    """The published table of Phi-3 follows from the published figures, cell by cell."""
    table = markdown(*cells(compared(phi3)))

    assert parsed(table) == expected(phi3.with_suffix(".expected.csv"))


def test_several_models(tmp_path: Path) -> None:
    """With several models, a column names them."""
    header, rows = cells(compared(MADE_UP, written(tmp_path / "a.csv", four())))

    assert header[:2] == ["model", "mode"]
    assert [row[0] for row in rows] == ["Made-up-7b, made up, gs64"] * 6 + ["Made-up-7b, made up"] * 4


@pytest.mark.parametrize("text", TABLE_HOSTILE)
def test_cell_cannot_break_out(tmp_path: Path, text: str) -> None:
    """With any cell or column name, the table stays one table, and the cell is plain text."""
    rows = [{**one, "note": text} for one in changed(four(), 4, "mode", f"int4 {text}")]
    (comparison,) = compared(written(tmp_path / "a.csv", rows, [*HEADER, "note"]))
    table = parsed(markdown(*cells([comparison], extra=True)))
    shown = " ".join(text.split()).encode("unicode_escape").decode() if not text.isascii() or "\x1b" in text else None

    assert len(table) == 5
    assert {len(row) for row in table} == {7}
    assert table[1][-1] == (shown or " ".join(text.split()))
    assert not any(ord(letter) < 32 for row in table for cell in row for letter in cell)


@pytest.mark.parametrize("share, text", [(0, "0%"), (1, "100%"), (0.4, "40%"), (0.07, "7%"), (0.125, "12.5%")])
def test_percent(share: float, text: str) -> None:
    """A share has a decimal only when it needs one."""
    assert percent(share) == text


@pytest.mark.parametrize(
    "error, text", [(0, "0.0%"), (-0.0001, "0.0%"), (-0.012, "-1.2%"), (9.999, "999.9%"), (192.6412, "19,264%")]
)
def test_error(error: float, text: str) -> None:
    """An error has one decimal, and zero has no sign."""
    assert error_text(error) == text


def test_narrow() -> None:
    """On a narrow screen, names that have no room are left out, and the labels of the axes do not meet."""
    (comparison,) = compared(MADE_UP)
    lines = chart(comparison, (), 40, 24, unicode=True).splitlines()

    assert max(map(len, lines)) <= 40
    assert lines[-1].split() == ["rate", "error,", "%"]
    assert sum(line.count("●") for line in lines) >= 2


def test_table_of_made_up_results() -> None:
    """The table has exactly the expected cells."""
    assert parsed(markdown(*cells(compared(MADE_UP)))) == expected(EXPECTED)
