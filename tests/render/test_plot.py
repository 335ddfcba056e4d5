from __future__ import annotations

import html
import pathlib
import re
from typing import Any

import pytest
from matplotlib import rc_context

from nncftools.analysis.session import Session
from nncftools.drawing import figure, legend_below
from nncftools.metrics import MEMORY, METRICS
from nncftools.render.plot import draw, draw_memory
from nncftools.render.view import View
from nncftools.session.model import Host, Mark, Peak, Rise, SamplerFacts
from nncftools.units import MemoryUnit
from tests.made_up import MIB, mib, process, session

NOTE = "no samples were recorded"
BOTH = {"rss": mib(100, 300, 200), "system": mib(1000, 1300, 1100)}


def words(of: Session, folder: pathlib.Path, *, metrics: tuple[str, ...] = ("rss",), **view: Any) -> list[str]:  # noqa: ANN401 — any choice
    """Return the texts in the picture of a session."""
    with rc_context({"svg.fonttype": "none"}):
        draw(of, View(metrics=metrics, **view), folder / "run.svg")
    drawn = (folder / "run.svg").read_text(encoding="utf-8")
    return [html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", drawn)]


@pytest.mark.parametrize(
    ("name", "magic"),
    [
        ("run.png", b"\x89PNG\r\n\x1a\n"),
        ("run.svg", b"<?xml"),
        ("run.pdf", b"%PDF-"),
        pytest.param("RUN.PNG", b"\x89PNG", marks=pytest.mark.long),
    ],
)
def test_format_of_the_ending(tmp_path: pathlib.Path, name: str, magic: bytes) -> None:
    """The picture is in the format that its name ends in, and the only file."""
    draw(session(BOTH), View(metrics=("rss", "system")), tmp_path / name)

    assert (tmp_path / name).read_bytes().startswith(magic)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the texts in the picture of a session as it is by default."""
    return words(session(), tmp_path_factory.mktemp("usual"))


@pytest.mark.parametrize("expected", ["work --fast", "RSS (MiB)", "Time (s)", "RSS peak 300.0 MiB at 0.500 s"])
def test_says_what_it_shows(usual: list[str], expected: str) -> None:
    """The picture names the command, its axes with their units, and the peak with its time."""
    assert expected in usual


def test_names_of_parallel_operations(tmp_path: pathlib.Path) -> None:
    """Operations at the same time are above each other, with the numbers that every output has."""
    of = session(BOTH)
    of.marks = [Mark(name=name, start_s=at_s, end_s=1, pid=100) for name, at_s in (("a", 0), ("b", 0.0), ("c", 0.5))]
    found = words(of, tmp_path)

    assert [name for name in found if name.endswith("(parallel)")] == [
        "1 a (parallel)",
        "2 b (parallel)",
        "3 c (parallel)",
    ]


@pytest.mark.parametrize(("metrics", "legends"), [(("rss",), 0), (("rss", "system"), 1)])
def test_legend(tmp_path: pathlib.Path, metrics: tuple[str, ...], legends: int) -> None:
    """Two metrics are told apart by a legend, which names their peaks; a single one needs none."""
    draw(session(BOTH), View(metrics=metrics), tmp_path / "run.svg")

    assert (tmp_path / "run.svg").read_text(encoding="utf-8").count('id="legend_1"') == legends


def test_wide_legend() -> None:
    """A legend that would be wider than the picture has fewer columns."""
    metrics = tuple(f"device_memory@nvidia{number}" for number in range(8))
    picture, axes = figure()
    draw_memory(axes, session({name: mib(30_000, 70_000, 7) for name in metrics}), View(metrics=metrics))
    legend_below(picture, 3)
    (legend,) = picture.legends

    assert len(legend.get_texts()) == len(metrics)
    assert legend.get_window_extent().width <= picture.bbox.width


def test_mark_of_torch(tmp_path: pathlib.Path) -> None:
    """What torch's allocator reached between marks is not the kernel's mark."""
    name = "device_allocated@nvidia0"
    of = session({"rss": mib(100, 300, 200), name: mib(1, 2, 3)})
    of.peaks[name] = Peak(sampled=3 << 20, at_s=0.5, low=40 << 20, rose_from_s=0.5, rose_to_s=1.0)

    assert any("(torch's high-water mark)" in text for text in words(of, tmp_path, metrics=("rss", name)))


def test_unit(tmp_path: pathlib.Path) -> None:
    """Axis and peak are in the unit that was asked for."""
    texts = words(session(), tmp_path, unit=MemoryUnit.KiB)

    assert "RSS (KiB)" in texts
    assert "RSS peak 307,200 KiB at 0.500 s" in texts


@pytest.mark.parametrize(("memory", "texts"), [(310, 1), (590, 1), (610, 0)])
def test_limit(tmp_path: pathlib.Path, memory: int, texts: int) -> None:
    """A limit is drawn with its size when the peak is above half of it."""
    of = session(BOTH, host=Host(memory=memory * MIB))
    found = words(of, tmp_path)

    assert (found.count("machine"), found.count(f"{memory} MiB")) == (texts, texts)


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


def test_from_zero(tmp_path: pathlib.Path) -> None:
    """From zero, the axis says so, and the peak is above the first sample."""
    texts = words(session(), tmp_path, from_zero=True)

    assert "RSS above the first sample (MiB)" in texts
    assert "RSS peak 200.0 MiB at 0.500 s" in texts


def test_a_peak_between_samples(tmp_path: pathlib.Path) -> None:
    """The kernel's mark is the peak, drawn above the samples between the two moments of its rise."""
    rise = Rise(from_s=0.5, to_s=1.0, high_water_mark=400 * MIB)
    texts = words(session(processes=[process(high_water_mark=400 * MIB, rises=[rise])]), tmp_path)

    assert "RSS peak 400.0 MiB at 0.500–1.00 s (kernel's high-water mark)" in texts


@pytest.mark.parametrize(("duration_s", "unit"), [(1.5, "s"), (179, "s"), (180, "min"), (10_800, "h")])
def test_time_is_in_the_unit_that_fits(tmp_path: pathlib.Path, duration_s: float, unit: str) -> None:
    """A long run has its time axis in minutes or hours."""
    assert f"Time ({unit})" in words(session(duration_s=duration_s), tmp_path)


@pytest.mark.parametrize(
    "nothing",
    [session({"rss": []}, duration_s=1.5), session({"rss": []}), session({"rss": [None, None]})],
    ids=["no samples", "no time", "unknown"],
)
def test_no_samples(tmp_path: pathlib.Path, nothing: Session) -> None:
    """A session of nothing is drawn, with a note that says so."""
    assert NOTE in words(nothing, tmp_path)


@pytest.mark.parametrize("columns", [{"rss": [5 * MIB]}, {"rss": [None, 5 * MIB]}, {"rss": [0]}, {"rss": [7, 7]}])
@pytest.mark.parametrize("from_zero", [False, True])
def test_few_samples(tmp_path: pathlib.Path, columns: dict[str, list[float | None]], *, from_zero: bool) -> None:
    """One sample, or a line without height, is drawn with its peak and without a note."""
    texts = words(session(columns), tmp_path, from_zero=from_zero)

    assert NOTE not in texts
    assert any(text.startswith("RSS peak") for text in texts)


def test_one_metric_unknown(tmp_path: pathlib.Path) -> None:
    """A metric of which nothing is known does not keep the other from being drawn."""
    texts = words(session({"rss": [None, None], "system": mib(1, 1)}), tmp_path, metrics=("rss", "system"))

    assert NOTE not in texts
    assert "System peak 1.0 MiB at 0.000 s" in texts


@pytest.mark.parametrize(
    "title",
    [
        "$\\frac{$",
        "a_b^c & <d> 100%",
        *(pytest.param(of, marks=pytest.mark.long) for of in ("$a_b$ costs 5$", "\\alpha", "$$")),
    ],
)
def test_a_title_is_text(tmp_path: pathlib.Path, title: str) -> None:
    """Dollars and underscores in a title are no mathematics."""
    assert title in words(session(), tmp_path, title=title)


def test_a_command_of_any_language(tmp_path: pathlib.Path) -> None:
    """Characters that the font lacks are drawn as boxes and not complained of."""
    draw(session(command=["python", "模型.py", "🎉"]), View(metrics=("rss",)), tmp_path / "run.png")

    assert (tmp_path / "run.png").exists()


def test_a_long_command_is_shortened(tmp_path: pathlib.Path) -> None:
    """Of a long command the beginning and the end stand in the title."""
    texts = words(session(command=["python", *("word" for _ in range(500)), "--last"]), tmp_path)
    title = [text for text in texts if "word" in text]

    assert title[0].startswith("python word")
    assert title[-1].endswith("--last")
    assert sum(map(len, title)) < 200


@pytest.mark.parametrize("place", ["run.png", "run.svg"])
def test_a_failing_write_leaves_no_file(tmp_path: pathlib.Path, place: str) -> None:
    """When the picture cannot take its place, nothing is left behind."""
    (tmp_path / place).mkdir()

    with pytest.raises(OSError, match=place):
        draw(session(), View(metrics=("rss",)), tmp_path / place)
    assert [path.name for path in tmp_path.iterdir()] == [place]


def test_an_old_picture_survives_a_failure(tmp_path: pathlib.Path) -> None:
    """When drawing fails half-way, the old picture is as it was and no other is left."""
    (tmp_path / "run.xyz").write_bytes(b"old")

    with pytest.raises(ValueError, match="xyz"):
        draw(session(), View(metrics=("rss",)), tmp_path / "run.xyz")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("run.xyz", b"old")]


def seldom(number: int, every: int) -> Session:
    """Return a session of many samples, of which one in ``every`` holds PSS."""
    rss = mib(*(100 + place % 50 for place in range(number)))
    pss = mib(*(50 + place % 7 if place % every == 1 else None for place in range(number)))
    return session({"rss": rss, "pss": pss})


@pytest.mark.parametrize(("number", "every"), [(10, 9), (20_000, 3)])
@pytest.mark.parametrize("metrics", [("pss",), ("rss", "pss")], ids=["alone", "beside RSS"])
def test_a_figure_that_is_seldom_known(
    tmp_path: pathlib.Path, number: int, every: int, metrics: tuple[str, ...]
) -> None:
    """PSS, which few samples hold, is drawn with its peak, and nothing is warned of."""
    texts = words(seldom(number, every), tmp_path, metrics=metrics)

    assert any(text.startswith("PSS peak 5") for text in texts)
    assert NOTE not in texts


def test_points_of_a_figure_that_is_seldom_known() -> None:
    """What is between two known points is a line through them: each is marked, and none is left out."""
    axes = figure()[1]
    draw_memory(axes, seldom(400, 50), View(metrics=("pss",)))
    line = axes.lines[0]

    assert [float(x) for x in line.get_xdata()] == [place / 2 for place in range(1, 400, 50)]
    assert line.get_marker() == "."


def test_merged_samples_have_no_gaps() -> None:
    """Where neighbours were merged, the usual distance of what is left is no gap."""
    axes = figure()[1]
    facts = SamplerFacts(interval_s=0.1, achieved_interval_s=0.1, merged_s=5.0)
    draw_memory(axes, session({"time_s": [0, 4, 9, 30], "rss": mib(1, 3, 2, 4)}, sampler=facts), View(("rss",)))
    values = [float(y) for y in axes.lines[0].get_ydata()]

    assert [value for value in values if value == value] == [1, 3, 2, 4]  # noqa: PLR0124 — NaN
    assert len(values) == 5


def test_every_metric_in_one_picture(tmp_path: pathlib.Path) -> None:
    """All memory metrics are told apart by colour and line, and named with their peaks."""
    of = session({name: mib(1, 3, 2) for name in MEMORY})
    axes = figure()[1]
    draw_memory(axes, of, View(MEMORY))
    looks = {(line.get_color(), line.get_linestyle()) for line in axes.lines if line.get_linestyle() != "None"}
    texts = words(of, tmp_path, metrics=MEMORY)

    assert len(looks) >= len(MEMORY)
    assert [name for name in MEMORY if f"{METRICS[name].label} peak 3.0 MiB at 0.500 s" not in texts] == []
