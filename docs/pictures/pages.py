"""Stills of the page, made with Chromium.

python -m docs.pictures.pages                 made-up states, wide, narrow, printed: three sheets in the working folder
python -m docs.pictures.pages SESSION.json    page.png: the head and the chart of a real run; README's was made from

    nncf-tools profile -o export.json -- optimum-cli export openvino --model DIR --weight-format int8 OUT
"""

from __future__ import annotations

import io
import pathlib
import sys
import tempfile

from PIL import Image

from docs.pictures.chromium import Chromium
from docs.pictures.states import STATES
from nncftools import Session
from nncftools.render.page import report
from nncftools.render.view import View

FOLDER = pathlib.Path(__file__).parent
COLOURS, GAP = 255, 12
WIDE, NARROW, PAPER = 1400, 420, 703
"""In CSS pixels; paper is A4 without its margins."""
SHEET_HIGH = 1400
"""What is lower is left out."""
FOR_README = (
    "<style>section:has(table), .hint, nav, .modebar-container { display: none !important; }"
    " body { margin-top: .6rem; }</style></head>"
)
README_WIDE, README_HIGH = 1000, 1205


def sheets() -> None:
    """Write a sheet of all states for each kind of reader."""
    with tempfile.TemporaryDirectory() as folder, Chromium() as browser:
        wide, narrow, printed = [], [], []
        for number, made in enumerate(STATES.values()):
            page = pathlib.Path(folder, f"{number}.html")
            page.write_bytes(report(made(), View(["rss"])))
            dark = bool(number % 2)
            browser.open(page, WIDE, dark=dark)
            wide.append(_cut(browser, WIDE, SHEET_HIGH).resize((WIDE // 2, SHEET_HIGH // 2), Image.Resampling.LANCZOS))
            browser.open(page, NARROW, dark=not dark)
            narrow.append(_cut(browser, NARROW, SHEET_HIGH))
            browser.open(page, PAPER)
            browser.on_paper()
            printed.append(_cut(browser, PAPER, SHEET_HIGH * 2 // 3))
    for name, stills in (("wide", wide), ("narrow", narrow), ("printed", printed)):
        _save(_beside(stills), pathlib.Path(f"pages_{name}.png"))


def still(session: pathlib.Path) -> None:
    """Write the still of a real run."""
    with tempfile.TemporaryDirectory() as folder, Chromium() as browser:
        page = pathlib.Path(folder, "page.html")
        content = report(Session.load(session), View(["rss"]))
        page.write_bytes(content.replace(b"</head>", FOR_README.encode(), 1))
        browser.open(page, README_WIDE)
        _save(_cut(browser, README_WIDE, README_HIGH), FOLDER / "page.png")


def _cut(browser: Chromium, wide: int, high: int) -> Image.Image:
    """Return the upper part of a page; exit if a part of it is wider than the window."""
    over = browser.run("document.documentElement.scrollWidth - innerWidth")
    if over > 0:
        sys.exit(f"the page is {over} pixels wider than {wide}")
    whole = Image.open(io.BytesIO(browser.still())).convert("RGB")
    paper = Image.new("RGB", (wide, high), whole.getpixel((0, whole.height - 1)))
    paper.paste(whole.crop((0, 0, wide, min(high, whole.height))))
    return paper


def _beside(stills: list[Image.Image]) -> Image.Image:
    sheet = Image.new("RGB", (sum(one.width + GAP for one in stills) - GAP, stills[0].height), "#808080")
    for place, one in enumerate(stills):
        sheet.paste(one, (place * (one.width + GAP), 0))
    return sheet


def _save(picture: Image.Image, path: pathlib.Path) -> None:
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        still(pathlib.Path(sys.argv[1]))
    else:
        sheets()
