from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import pytest
from matplotlib import rc_context

from nncftools.analysis.session import Session
from nncftools.drawing import figure, legend_below
from nncftools.render.plot import draw, draw_memory
from nncftools.render.view import View
from nncftools.session.model import Host
from tests.made_up import MIB, mib, session

BOTH = {"rss": mib(100, 300, 200), "system": mib(1000, 1300, 1100)}


def words(of: Session, folder: Path, *, metrics: tuple[str, ...] = ("rss",), **view: Any) -> list[str]:  # noqa: ANN401 — any choice
    """Return the texts in the picture of a session."""
    with rc_context({"svg.fonttype": "none"}):
        draw(of, View(metrics=metrics, **view), folder / "run.svg")
    drawn = (folder / "run.svg").read_text(encoding="utf-8")
    return [html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", drawn)]


@pytest.mark.parametrize(
    "name, magic",
    [
        ("run.png", b"\x89PNG\r\n\x1a\n"),
        pytest.param("run.pdf", b"%PDF-", marks=pytest.mark.long),
        pytest.param("RUN.PNG", b"\x89PNG", marks=pytest.mark.long),
    ],
)
def test_format_of_the_ending(tmp_path: Path, name: str, magic: bytes) -> None:
    """The picture is in the format that its name ends in, and the only file."""
    draw(session(BOTH), View(metrics=("rss", "system")), tmp_path / name)

    assert (tmp_path / name).read_bytes().startswith(magic)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_wide_legend() -> None:
    """A legend that would be wider than the picture has fewer columns."""
    metrics = tuple(f"device_memory@nvidia{number}" for number in range(8))
    picture, axes = figure()
    draw_memory(axes, session({name: mib(30_000, 70_000, 7) for name in metrics}), View(metrics=metrics))
    legend_below(picture, 3)
    (legend,) = picture.legends

    assert len(legend.get_texts()) == len(metrics)
    assert legend.get_window_extent().width <= picture.bbox.width


@pytest.mark.parametrize("memory", [301, 315, 340, 500])
def test_text_of_the_peak_beside_a_limit(memory: int) -> None:
    """The text of the peak does not cross the line of the limit."""
    axes, of = figure()[1], session(host=Host(memory=memory * MIB))
    draw_memory(axes, of, View(metrics=("rss",)))
    axes.figure.draw_without_rendering()
    (text,) = [text for text in axes.texts if text.get_text().startswith("RSS peak")]
    line = axes.transData.transform((0, memory))[1]
    box = text.get_window_extent()

    assert not box.y0 <= line <= box.y1
    assert box.y1 < axes.bbox.y1


@pytest.mark.parametrize("duration_s, unit", [(179, "s"), (180, "min"), (10_800, "h")])
def test_time_is_in_the_unit_that_fits(tmp_path: Path, duration_s: float, unit: str) -> None:
    """A long run has its time axis in minutes or hours."""
    assert f"Time ({unit})" in words(session(duration_s=duration_s), tmp_path)


@pytest.mark.parametrize("rss", [[5 * MIB], [None, 5 * MIB], [0], [7, 7]])
def test_few_samples(tmp_path: Path, rss: list[float | None]) -> None:
    """One sample, or a line without height, is drawn with its peak."""
    texts = words(session({"rss": rss}), tmp_path, from_zero=rss == [0])

    assert any(text.startswith("RSS peak") for text in texts)


@pytest.mark.parametrize(
    "title",
    [
        "$\\frac{$",
        "a_b^c & <d> 100%",
        *(pytest.param(of, marks=pytest.mark.long) for of in ("$a_b$ costs 5$", "\\alpha", "$$")),
    ],
)
def test_a_title_is_text(tmp_path: Path, title: str) -> None:
    """Dollars and underscores in a title are no mathematics."""
    assert title in words(session(), tmp_path, title=title)


def test_a_long_command_is_shortened(tmp_path: Path) -> None:
    """Of a long command the beginning and the end stand in the title."""
    texts = words(session(command=["python", *("word" for _ in range(500)), "--last"]), tmp_path)
    title = [text for text in texts if "word" in text]

    assert title[0].startswith("python word")
    assert title[-1].endswith("--last")
    assert sum(map(len, title)) < 200


def test_an_old_picture_survives_a_failure(tmp_path: Path) -> None:
    """When drawing fails half-way, the old picture is as it was and no other is left."""
    (tmp_path / "run.xyz").write_bytes(b"old")

    with pytest.raises(ValueError, match="xyz"):
        draw(session(), View(metrics=("rss",)), tmp_path / "run.xyz")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("run.xyz", b"old")]


@pytest.mark.parametrize("number, every", [(10, 9), (20_000, 3)])
def test_a_figure_that_is_seldom_known(tmp_path: Path, number: int, every: int) -> None:
    """PSS, which few samples hold, is drawn with its peak, and nothing is warned of."""
    rss = mib(*(100 + place % 50 for place in range(number)))
    pss = mib(*(50 + place % 7 if place % every == 1 else None for place in range(number)))
    texts = words(session({"rss": rss, "pss": pss}), tmp_path, metrics=("rss", "pss"))

    assert any(text.startswith("PSS peak 5") for text in texts)
