from __future__ import annotations

import html
import io
import pathlib
import re

import pytest
from matplotlib import rc_context  # noqa: TID253 — drawing is what is tested
from rich.console import Console

from nncftools.cli import screen
from nncftools.cli.fit import outputs, picture
from nncftools.cli.fit.search import Fit
from nncftools.units import MemoryUnit
from tests.render.fit.searches import FOUND, search, trial

GIB = MemoryUnit.GiB
NEVER = search(trial(9, ended="exit status 1"), works=None, fast=None)
WIDE = search(trial(0.02, 5, "given up after 100 s"), trial(7), works=7, fast=7)


def drawn(fit: Fit, folder: pathlib.Path) -> list[str]:
    """Return the texts in the picture."""
    with rc_context({"svg.fonttype": "none"}):
        picture.draw(fit, GIB, folder / "fit.svg")
    found = (folder / "fit.svg").read_text(encoding="utf-8")
    return [html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", found)]


def test_text() -> None:
    """The text has a line for each run, and the sentence."""
    lines = screen.plain(outputs.text(FOUND, GIB)).splitlines()

    assert [line.split() for line in lines[:6]] == [
        ["Limit,", "GiB", "Ended", "Time", "×", "free", "time", "Refaults", "Stall"],
        ["none", "worked", "20.00", "s", "1.0", "–", "–"],
        ["7.070", "worked", "20.00", "s", "1.0", "3.0", "GiB", "1.50", "s"],
        ["5.900", "worked", "20.40", "s", "1.0", "3.0", "GiB", "1.50", "s"],
        ["5.300", "worked", "42.00", "s", "2.1", "3.0", "GiB", "1.50", "s"],
        ["5.200", "out", "of", "memory", "8.00", "s", "0.4", "–", "1.50", "s"],
    ]
    assert lines[7].startswith("Works from 5.30 GiB (2.1 × slower); full speed from 5.90 GiB; ")


def test_narrow() -> None:
    """On a narrow terminal, columns continue below; nothing is cut."""
    fit = search(trial(5.3, ended="out of memory, given up after 100 s", is_warm=True))
    console = Console(width=60, file=io.StringIO())
    with console.capture() as captured:
        console.print(outputs.text(fit, GIB))
    shown = captured.get()

    assert "out of memory, given up after 100 s, warm cache" in shown
    assert "Stall" in shown
    assert "…" not in shown


def test_commands() -> None:
    """Commands to copy are not cut, however long."""
    fit = search(trial(5.3), fast=5.3)
    fit.command = ["optimum-cli", "export", "--model", "m" * 200, "OUT"]
    lines = outputs.commands(fit).splitlines()

    assert [line.split()[0] for line in lines] == ["docker", "systemd-run"]
    assert all(line.endswith("m OUT") for line in lines)


def test_markdown() -> None:
    """Markdown has the sentence first, the limits that were found in bold, and the commands as code."""
    lines = outputs.markdown(FOUND, GIB).splitlines()

    assert lines[0].startswith("**Works from 5.30 GiB")
    assert sum(line.startswith("| **") for line in lines) == 2
    assert lines[-1] == "```"


def test_warnings_are_shown() -> None:
    """Text and Markdown say what makes the result less sure."""
    fit = search(trial(5.3, is_warm=True), fast=5.3, is_finished=False)

    assert "! warm cache: 1 of 1" in screen.plain(outputs.text(fit, GIB))
    assert "- ⚠ the search is not finished" in outputs.markdown(fit, GIB)


def test_picture(tmp_path: pathlib.Path) -> None:
    """The picture names both limits, the free run, its floor and its peak."""
    texts = drawn(FOUND, tmp_path)

    assert {"python 'export $x.py'", "works from 5.30 GiB", "full speed from 5.90 GiB"} <= {*texts}
    assert {"time without a limit, 20.00 s", "floor, 5.20 GiB", "free peak, 7.20 GiB"} <= {*texts}


@pytest.mark.parametrize("fit", [NEVER, WIDE])
def test_picture_of_extremes(fit: Fit, tmp_path: pathlib.Path) -> None:
    """Runs that all failed, and limits that differ by much, are drawn, too."""
    assert "failed or given up" in drawn(fit, tmp_path)


def test_files(tmp_path: pathlib.Path) -> None:
    """Markdown and picture are written; without a run under a limit there is no picture."""
    outputs.write(FOUND, GIB, tmp_path)
    (tmp_path / "free").mkdir()
    outputs.write(search(works=None, fast=None), GIB, tmp_path / "free")

    assert {path.name for path in tmp_path.iterdir()} == {"fit.md", "fit.png", "free"}
    assert [path.name for path in (tmp_path / "free").iterdir()] == ["fit.md"]
