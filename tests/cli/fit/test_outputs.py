from __future__ import annotations

import html
import io
import pathlib
import re

import msgspec
import pytest
from matplotlib import rc_context
from rich.console import Console

from nncftools.cli import screen
from nncftools.cli.fit import outputs, picture
from nncftools.cli.fit.search import Fit
from nncftools.cli.options import SeriesRequest
from nncftools.files import Way
from nncftools.units import MemoryUnit
from tests.render.fit.searches import FOUND, FREE, search, trial

GIB = MemoryUnit.GiB
NOT_FAST = "full speed was not reached with any limit that was tried"
PEAK = "without a limit, its peak is 7.20 GiB"
NEVER = search(trial(9, ended="exit status 1"), works=None, fast=None)
WIDE = search(trial(0.02, 5, "given up after 100 s"), trial(7), works=7, fast=7)


def drawn(fit: Fit, folder: pathlib.Path) -> list[str]:
    """Return the texts in the picture."""
    with rc_context({"svg.fonttype": "none"}):
        picture.draw(fit, GIB, folder / "fit.svg")
    found = (folder / "fit.svg").read_text(encoding="utf-8")
    return [html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", found)]


def test_narrow() -> None:
    """On a narrow terminal, columns continue below; nothing is cut."""
    fit = search(trial(5.3, ended="out of memory, given up after 100 s", is_warm=True))
    console = Console(width=60, file=io.StringIO())
    with console.capture() as captured:
        console.print(outputs.shown(fit, GIB).text)
    shown = captured.get()

    assert "out of memory, given up after 100 s, warm cache" in shown
    assert "Stall" in shown
    assert "…" not in shown


def test_commands(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Commands to copy are not cut, however long."""
    fit = search(trial(5.3), fast=5.3)
    fit.command = ["optimum-cli", "export", "--model", "m" * 200, "OUT"]
    outputs.finish(SeriesRequest(), fit, outputs.shown(fit, GIB), Way(tmp_path))
    lines = capsys.readouterr().out.splitlines()[-2:]

    assert [line.split()[0] for line in lines] == ["docker", "systemd-run"]
    assert all(line.endswith("m OUT") for line in lines)


def test_warnings_are_shown() -> None:
    """Text and Markdown say what makes the result less sure."""
    fit = search(trial(5.3, is_warm=True), fast=5.3, is_finished=False)

    assert "! warm cache: 1 of 1" in screen.plain(outputs.shown(fit, GIB).text)
    assert "- ⚠ the search is not finished" in outputs.shown(fit, GIB).markdown


@pytest.mark.parametrize("fit", [NEVER, WIDE])
def test_picture_of_extremes(fit: Fit, tmp_path: pathlib.Path) -> None:
    """Runs that all failed, and limits that differ by much, are drawn, too."""
    assert "failed or given up" in drawn(fit, tmp_path)


def test_files(tmp_path: pathlib.Path) -> None:
    """Markdown and picture are written; without a run under a limit there is no picture."""
    (tmp_path / "free").mkdir()

    assert outputs.write_beside(outputs.shown(FOUND, GIB), Way(tmp_path)) is None
    free = outputs.shown(search(works=None, fast=None), GIB)
    assert outputs.write_beside(free, Way(tmp_path / "free")) is None
    assert {path.name for path in tmp_path.iterdir()} == {"fit.md", "fit.png", "free"}
    assert [path.name for path in (tmp_path / "free").iterdir()] == ["fit.md"]


@pytest.mark.parametrize(
    ("fit", "sentence"),
    [
        (search(trial(5.3), fast=5.3), f"works from 5.30 GiB, at full speed; {PEAK}"),
        (NEVER, f"worked with no limit that was tried, up to 9.00 GiB; {PEAK}"),
        (
            search(trial(5.3, 3.0), trial(9, 2.0), fast=None),
            f"works from 5.30 GiB (3.0 × slower); {NOT_FAST}, up to 9.00 GiB; {PEAK}",
        ),
        (
            search(works=None, fast=None),
            f"needs at least 5.20 GiB; with 7.00 GiB no file is read twice; {PEAK} (no limit was tried)",
        ),
    ],
    ids=["one limit", "never worked", "never fast", "only free"],
)
def test_sentence(fit: Fit, sentence: str) -> None:
    """What was found is said, and what was not."""
    assert outputs.result_sentence(fit, GIB) == sentence


def test_no_limit_to_copy() -> None:
    """Where nothing worked, there is no command to copy."""
    assert outputs.limit_commands(NEVER) == []


def test_free_run() -> None:
    """The free run is one line."""
    assert outputs.of_free(FREE, GIB) == (
        "without a limit, worked, 20.00 s, floor 5.20 GiB, comfortable 7.00 GiB, peak 7.20 GiB"
    )


def test_runs() -> None:
    """Each run is one line, with how much slower it was if it worked, and a warm cache."""
    assert outputs.of_trial(trial(5.3, 2.1), GIB) == "5.30 GiB, worked, 42.00 s, 2.1 × slower"
    assert outputs.of_trial(trial(5.3, is_warm=True), GIB) == (
        "5.30 GiB, worked, 20.00 s, as fast as without a limit, warm cache"
    )
    assert outputs.of_trial(trial(5.3, 0.5, "out of memory"), GIB) == "5.30 GiB, out of memory, 10.00 s"


def test_words_commands() -> None:
    """Limits of the commands are whole MiB, rounded up, and swap is as it was in the runs."""
    with_swap = outputs.limit_commands(search(trial(5.3), swap=1 << 30))

    assert "--memory 5428m --memory-swap 6452m" in with_swap[0]
    assert "MemorySwapMax=1024M" in with_swap[1]


def test_line_breaks_to_copy() -> None:
    """A script of several lines stays one when its line is copied to a shell; nothing in it acts on the terminal."""
    script = "printf 'a\\t'\necho \x1b"
    line = outputs.limit_commands(msgspec.structs.replace(FOUND, command=["sh", "-c", script]))[0]

    assert line.endswith(r"""IMAGE sh -c $'printf \'a\\t\'\necho \x1b'""")


def test_least_of_docker() -> None:
    """Docker refuses limits below 6 MiB; systemd does not."""
    docker, systemd = outputs.limit_commands(search(trial(0.002), works=0.002, swap=2**20))

    assert docker.startswith("docker run --memory 6m --memory-swap 7m ")
    assert "MemoryMax=3M -p MemorySwapMax=1M" in systemd


def test_not_finished_and_never_worked() -> None:
    """Where nothing worked yet, more runs try larger limits."""
    fit = search(trial(5.3, ended="out of memory"), works=None, fast=None, is_finished=False)

    assert "with more runs, a larger limit may be enough" in next(outputs.notes(fit))


def test_notes() -> None:
    """A search that was not finished and a warm cache are noted."""
    assert list(outputs.notes(FOUND)) == []
    assert list(outputs.notes(search(trial(5.3, is_warm=True), trial(6), is_finished=False))) == [
        "the search is not finished: with more runs, the limits may be smaller",
        "warm cache: 1 of 2 runs found their files in memory; with a cold cache, they may need more",
    ]
