"""Draw what a notebook shows of a session, on light and on dark: notebook.py SESSION PICTURE.png; needs Chromium.

The picture in docs/api.md:

    nncf-tools profile -o run.json -- python compress.py
    python docs/pictures/notebook.py run.json docs/pictures/notebook.png
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile

from PIL import Image, ImageChops

from nncftools import Session

WIDTH, HEIGHT, COLOURS = 940, 1600, 160
PAPERS = ("background:#ffffff;color:#1f1f1f", "background:#111111;color:#d9d9d9")
"""Of JupyterLab's two themes."""


def draw(session: pathlib.Path, picture: pathlib.Path) -> None:
    """Write the picture, without margins, in few colours."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("chromium is missing on PATH")
    shown = Session.load(session)._repr_html_()
    look = "padding:12px;font:13px sans-serif"
    body = "".join(f'<div style="{paper};{look}">{shown}</div>' for paper in PAPERS)
    with tempfile.TemporaryDirectory() as folder:
        html, shot = pathlib.Path(folder, "cell.html"), pathlib.Path(folder, "shot.png")
        html.write_text(f'<!doctype html><meta charset="utf-8"><body style="margin:0">{body}', encoding="utf-8")
        words = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        words += [f"--window-size={WIDTH},{HEIGHT}", f"--screenshot={shot}", html.as_uri()]
        subprocess.run([browser, *words], check=True, capture_output=True)
        image = Image.open(shot).convert("RGB")
    paper = Image.new("RGB", image.size, image.getpixel((0, image.height - 1)))
    _, _, _, bottom = ImageChops.difference(image, paper).getbbox() or (0, 0, 0, image.height)
    image.crop((0, 0, image.width, bottom)).quantize(COLOURS).save(picture, optimize=True)


if __name__ == "__main__":
    draw(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
