from __future__ import annotations

import html
import json
import pathlib
import re
import subprocess
from typing import Any

import pytest

from nncftools.compression.outputs import page
from nncftools.compression.picture import draw, rendered
from nncftools.compression.reading import LATENCY, PEAK, Figure
from nncftools.compression.results import bounds_of
from tests.browser import browser
from tests.compression.made_up import HEADER, MADE_UP, changed, compared, four, with_figures, written

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


def made(*paths: pathlib.Path, bound: str = "", extra: bool = False, also: tuple[Figure, ...] = ()) -> str:
    """Return the page of results."""
    comparisons = compared(*paths)
    limit = bounds_of(bound) if bound else None
    return page(comparisons, rendered(draw(comparisons, limit, also=also), "svg"), limit, extra=extra)


def hostile(folder: pathlib.Path) -> pathlib.Path:
    """Write results whose texts try to become part of the page."""
    rows = [{**one, "note": HOSTILE} for one in changed(four(), 4, "plot name", HOSTILE)]
    rows = [{**one, HEADER[0]: HOSTILE, "mode": f"{one['mode']} {HOSTILE}"} for one in rows]
    return written(folder / "a.csv", rows, [*HEADER, "note", f"{HOSTILE} column"])


class TestPage:
    def test_loads_nothing(self) -> None:
        """The page contains no address but the namespaces of SVG, and denies itself network access."""
        text = made(MADE_UP)

        assert set(re.findall(r"https?://[^\s\"'<]+", text)) <= {
            "http://www.w3.org/2000/svg",
            "http://www.w3.org/1999/xlink",
        }
        assert "default-src 'none'" in text
        assert not re.search(r"<(link|iframe|img|object)|@import|url\((?!#)", text)

    def test_is_one_document(self) -> None:
        """There is one document type, no XML declaration inside, and every placeholder is filled."""
        text = made(MADE_UP)

        assert text.startswith("<!DOCTYPE html>")
        assert text.count("<!DOCTYPE") == 1
        assert "<?xml" not in text
        assert not re.search(r"@[A-Z]+@", text)

    def test_texts_stay_texts(self, tmp_path: pathlib.Path) -> None:
        """Texts of the file become neither elements nor control characters."""
        text = made(hostile(tmp_path), extra=True)

        assert text.count("<script") == 2
        assert "<img" not in text
        assert "\x1b" not in text

    def test_recommendation(self) -> None:
        """The recommended row is named and highlighted."""
        text = made(MADE_UP, bound="error<=5%")

        assert "Made-up-7b: 80% int4 is the smallest with error ≤ 5%." in text
        assert re.findall(r'<tr data-row="(\d)" class="recommended">', text) == ["3"]

    def test_rows_left_out(self, tmp_path: pathlib.Path) -> None:
        """The page says how many rows could not be judged."""
        text = made(with_figures(tmp_path / "a.csv"), bound="peak<=4GiB")

        assert "Made-up-7b: int8 is the smallest with peak ≤ 4 GiB (1 row left out, peak unknown)." in text


def in_browser(text: str, folder: pathlib.Path, *more: str) -> dict[str, Any]:
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
    def test_pointing_shows_all_of_a_row(self, tmp_path: pathlib.Path) -> None:
        """The middle of every point is sensitive to the pointer; its full row is shown, then hidden again."""
        points = in_browser(made(MADE_UP), tmp_path)["points"]
        lora = dict(zip(points["row-2"]["names"], points["row-2"]["values"], strict=True))

        assert sorted(points) == [f"row-{number}" for number in range(1, 6)]
        for number, (name, point) in enumerate(sorted(points.items()), 1):
            assert (point["hit"], point["lines"]) == (name, [number])
            assert point["shown"] and point["inside"] and point["gone"]  # noqa: PT018 — one behaviour
        assert lora == {
            "compression time, min": "60",
            "model, made up, gs64": "Made-up-7b",
            "mode": "int4 + scale estimation + lora correction",
            "%int4": "1",
            "%int8": "0",
            "lora rank": "64",
            "plot name": "rank 64",
            "model size, Gb": "1.6",
            "wikitext, word perplexity": "10.4",
            "lambada-openai, acc": "0.49",
            "lambada-openai, perplexity": "4.12",
            "WWB, similarity": "0.97",
            "average relative error": "0.03",
            "compression rate": "5",
            "kind": "LoRA correction",
            "on Pareto front": "yes",
            "file": "made_up_compression.csv",
            "row": "7",
        }

    @pytest.mark.parametrize(
        ("scheme", "paper", "filtered"), [(0, "rgb(27, 27, 27)", True), (1, "rgb(255, 255, 255)", False)]
    )
    def test_dark_and_light(self, tmp_path: pathlib.Path, scheme: int, paper: str, *, filtered: bool) -> None:
        """The page is as dark as the reader's system, and so is its picture, whose hues stay."""
        found = in_browser(made(MADE_UP), tmp_path, f"--blink-settings=preferredColorScheme={scheme}")

        assert found["paper"] == paper
        assert (found["filter"] != "none") == filtered

    def test_heading_sorts(self, tmp_path: pathlib.Path) -> None:
        """A click on a heading sorts by that column, numbers by value, gaps last; the next click reverses it."""
        orders = in_browser(made(MADE_UP, extra=True), tmp_path)["orders"]

        assert orders["compression rate"][0] == ["1.0x", "4.0x", "5.0x", "6.4x", "8.0x", "8.0x"]
        assert orders["compression rate"][1] == ["8.0x", "8.0x", "6.4x", "5.0x", "4.0x", "1.0x"]
        assert orders["compression time, min"][0] == ["0", "0.5", "2", "12.5", "60", "90"]
        assert orders["lora rank"][:2] == [["64", "", "", "", "", ""]] * 2
        assert orders["mode"][0][0] == "fp32"
        assert {order[2] for order in orders.values()} == {"descending"}

    def test_texts_stay_texts(self, tmp_path: pathlib.Path) -> None:
        """Nothing in a cell or heading is executed."""
        found = in_browser(made(hostile(tmp_path), extra=True), tmp_path)
        shown = [value for point in found["points"].values() for value in point["values"]]

        assert found["injected"] is None
        assert HOSTILE.replace("\x1b", "\\x1b") in shown
        assert len(found["points"]) == 3

    def test_panels(self, tmp_path: pathlib.Path) -> None:
        """A point in any panel shows its row."""
        points = in_browser(made(with_figures(tmp_path / "a.csv"), also=(PEAK, LATENCY)), tmp_path)["points"]
        last = dict(zip(points["panel-2-row-3"]["names"], points["panel-2-row-3"]["values"], strict=True))
        below = {
            name: (point["hit"], point["shown"], point["lines"]) for name, point in points.items() if "panel" in name
        }

        assert below == {
            f"panel-{panel}-row-{number}": (f"panel-{panel}-row-{number}", True, [number])
            for panel in (1, 2)
            for number in (1, 2, 3)
        }
        assert (last["mode"], last["peak memory, MiB"], last["per token, s"]) == ("int4 + gptq", "5000", "0.012346")

    def test_several_models(self, tmp_path: pathlib.Path) -> None:
        """Points of several models lead to their own rows."""
        found = in_browser(made(MADE_UP, written(tmp_path / "a.csv", four())), tmp_path)

        assert len(found["points"]) == 8
        assert {point["values"][0] for point in found["points"].values()} >= {"Made-up-7b"}
