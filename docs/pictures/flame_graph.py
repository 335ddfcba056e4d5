"""Draw the flame graph of a session's page for a document: flame_graph.py SESSION PICTURE.png; needs Chromium.

The picture in README:

    nncf-tools profile -o export.json -- optimum-cli export openvino --model DIR --task text-generation OUT
    python docs/pictures/flame_graph.py export.json docs/pictures/flame_graph.png
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile

from PIL import Image, ImageChops

from nncftools import Session
from nncftools.render.page import report
from nncftools.render.view import View

WIDTH, HEIGHT, COLOURS = 1000, 1400, 48
ALONE = (
    "<style>body > :not(#flame, #js-plotly-tester), #flame nav, #flame .hint { display: none !important; }"
    " :root { color-scheme: light; } body { margin: 0; padding: 0 8px; }</style></head>"
)


def draw(session: pathlib.Path, picture: pathlib.Path) -> None:
    """Write the picture: the section of the page, without margins, in few colours."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("chromium is missing on PATH")
    with tempfile.TemporaryDirectory() as folder:
        html, shot = pathlib.Path(folder, "page.html"), pathlib.Path(folder, "shot.png")
        content = report(Session.load(session), View(["rss"]))
        html.write_bytes(content.replace(b"</head>", ALONE.encode(), 1))
        words = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=8000"]
        words += [f"--window-size={WIDTH},{HEIGHT}", f"--screenshot={shot}", html.as_uri()]
        subprocess.run([browser, *words], check=True, capture_output=True)
        image = Image.open(shot).convert("RGB")
    paper = Image.new("RGB", image.size, image.getpixel((0, image.height - 1)))
    _, _, _, bottom = ImageChops.difference(image, paper).getbbox() or (0, 0, 0, image.height)
    image.crop((0, 0, image.width, bottom + 8)).quantize(COLOURS).save(picture, optimize=True)


if __name__ == "__main__":
    draw(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
