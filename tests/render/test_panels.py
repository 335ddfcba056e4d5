from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from nncftools.analysis.session import Session
from nncftools.drawing import missing_glyphs_as_boxes
from nncftools.render.panels import page
from nncftools.render.view import View
from nncftools.session.model import Host, LimitReached, Mark, SamplerFacts
from nncftools.session.nesting import KINDS
from nncftools.units import MemoryUnit
from tests.made_up import MIB, marks, mib, process, session

VIEW = View(metrics=("rss",))
NUMBER = 240
IO = ("read_bytes", "write_bytes", "read_chars", "write_chars")


def run(  # noqa: PLR0913 — every one is a way in which runs differ
    marks: Sequence[Mark] = (),
    *,
    length_s: float = 60.0,
    number: int = NUMBER,
    gap: tuple[float, float] | None = None,
    stacked: bool = False,
    without: Sequence[str] = (),
    **fields: Any,  # noqa: ANN401 — any field of a session
) -> Session:
    """Return a run of four cores: RSS rises and falls, half the time three cores are busy, then one; I/O goes on."""
    time = np.linspace(0, length_s, number)
    if gap is not None:
        time = time[(time <= gap[0]) | (time >= gap[1])]
    rss = (200 + 1500 * np.sin(np.linspace(0, 3, len(time)))) * MIB
    parts = {"anon": rss * 0.5, "file": rss * 0.25, "shmem": rss * 0.25} if stacked else {}
    cpu = np.where(time < length_s / 2, time * 3, length_s * 1.5 + (time - length_s / 2))
    columns = {"rss": rss, **parts, "cpu_user": cpu, "cpu_system": cpu * 0}
    columns |= {name: time * place * MIB for place, name in enumerate(IO)}
    kept = {name: column.tolist() for name, column in columns.items() if name not in without}
    interval_s = length_s / (number - 1) if number > 1 else 0.1
    totals = {name: column[-1] for name, column in kept.items() if column and name not in {"rss", *parts}}
    given: dict[str, Any] = {
        "duration_s": length_s,
        "marks": list(marks),
        "host": Host(cpus=4),
        "totals": totals,
        "sampler": SamplerFacts(interval_s=interval_s, achieved_interval_s=interval_s),
    }
    return session({"time_s": time.tolist(), **kept}, **{**given, **fields})


def even(number: int, length_s: float = 60.0) -> list[Mark]:
    """Return operations of the same length that fill a run: kinds, and names that are none."""
    each_s = length_s / max(number, 1)
    names = [KINDS[place // 2 % len(KINDS)] if place % 2 else f"my step {place}" for place in range(number)]
    return [
        Mark(name=name, start_s=place * each_s, end_s=(place + 1) * each_s, call="nncf.quantize" if place % 3 else None)
        for place, name in enumerate(names)
    ]


def names(*every: str) -> list[Mark]:
    """Return operations of these names, every second one short."""
    lengths = [60 / len(every) * (1 if place % 2 else 0.3) for place in range(len(every))]
    starts = [60 / len(every) * place for place in range(len(every))]
    return [
        Mark(name=name, start_s=start_s, end_s=start_s + length_s, call="package." * 30, error="Error" * 40)
        for name, start_s, length_s in zip(every, starts, lengths, strict=True)
    ]


WORKFLOW = [
    Mark(
        name="Model Loading", start_s=1, end_s=12, kind="Model Loading", call="transformers.AutoModel.from_pretrained"
    ),
    Mark(name="Export", start_s=12, end_s=14, kind="Export"),
    Mark(name="Compilation", start_s=20, end_s=48, kind="Compilation", count=24, total_s=11, longest_s=2),
    Mark(name="my own", start_s=50, end_s=58, error="ValueError"),
]
NESTED = [
    Mark(name="Quantization", start_s=5, end_s=40),
    Mark(name="bias correction", start_s=9, end_s=39, depth=1),
    Mark(name="layer", start_s=10, end_s=38, depth=2, count=200, total_s=20, longest_s=1),
    Mark(name="Saving", start_s=45, error="unfinished"),
]
THREADS = [Mark(name=f"thread {place}", start_s=place * 2, end_s=30 + place, pid=100) for place in range(9)]
BEYOND = marks("before 0-0, over the end 50-90, after 70-1000000")
LONG = names("x" * 200, "words " * 33, "模型压缩" * 50, "tab\tnew\nline\x1b[31m", "$a_b$ \\frac{", "m", "🎉" * 9)
ABOVE = LimitReached(at_s=20, rss=1100 * MIB, limit=1000 * MIB, action="warn")
CASES = {
    "no operation": run(),
    **{f"{number} operations": run(even(number)) for number in (1, 4, 12, 25, 60, 2_000)},
    "workflow": run(WORKFLOW, stacked=True),
    "gap": run(WORKFLOW, stacked=True, gap=(22, 30)),
    "nested": run(NESTED),
    "threads": run(THREADS),
    "beyond the run": run(BEYOND),
    "long names": run(LONG),
    "a long command": run(WORKFLOW, command=["python", *["word"] * 500, "x" * 1000]),
    "a command of any language": run(command=["模型" * 300]),
    "a peak between samples": run(processes=[process(high_water_mark=3_000 * MIB)]),
    "near its limit": run(WORKFLOW, stacked=True, host=Host(cpus=4, memory=1710 * MIB)),
    "above its limit": run(WORKFLOW, stacked=True, limit_reached=ABOVE),
    "0.05 s": run(even(2, 0.05), length_s=0.05, number=6),
    "one sample": run(even(2), number=1),
    "no time": run(even(1, 0), length_s=0, number=1),
    "no samples": run(even(2), number=0),
    "no CPU, no I/O": run(WORKFLOW, without=("cpu_user", "cpu_system", *IO)),
    "many hours": run(even(5, 400_000), length_s=400_000),
}


TELLING = (
    "no operation",
    "near its limit",
    "workflow",
    "gap",
    "long names",
    "no samples",
)
"""The cases that differ most; the others are drawn by the long tests."""


def shown(figure: Figure) -> list[tuple[str, Bbox]]:
    """Return the texts on a page that was drawn, and where; in pixels."""
    canvas = FigureCanvasAgg(figure)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        axes_lines = [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]
        ticks = {text for axis in axes_lines for tick in axis.get_major_ticks() for text in (tick.label1, tick.label2)}
        drawn = {text for axis in axes_lines for tick in axis._update_ticks() for text in (tick.label1, tick.label2)}
        texts = [text for text in figure.findobj(Text) if isinstance(text, Text) and text.get_text().strip()]
        return [
            (text.get_text(), text.get_window_extent(canvas.get_renderer()))
            for text in texts
            if text.get_visible() and (text not in ticks or text in drawn)
        ]


@cache
def page_of(case: str, depth: int = 1) -> Figure:
    """Return the page of a case, made once for all tests that only look at it."""
    return page(CASES[case], View(metrics=("rss",), depth=depth))


@cache
def words(case: str, depth: int = 1) -> list[str]:
    """Return the texts that are on the page of a case, without those of the axes' ticks."""
    every = page_of(case, depth).findobj(Text)
    return [text.get_text() for text in every if isinstance(text, Text) and text.get_visible()]


@pytest.mark.parametrize(
    "case, unit",
    [
        *(
            pytest.param(case, MemoryUnit.MiB, marks=[] if case in TELLING else pytest.mark.long, id=case)
            for case in CASES
        ),
        ("workflow", MemoryUnit.B),
        ("no operation", MemoryUnit.KiB),
    ],
)
def test_no_text_covers_another_or_leaves_the_page(case: str, unit: MemoryUnit) -> None:
    """Every text can be read, legends stand outside of all axes, the page is a page, and nothing is warned of."""
    with missing_glyphs_as_boxes():
        figure = page(CASES[case], View(metrics=("rss",), unit=unit, depth=3))
        figure.draw_without_rendering()
    texts = shown(figure)
    legends = [legend.get_window_extent() for axes in figure.axes if (legend := axes.get_legend()) is not None]
    wide, high = figure.bbox.width, figure.bbox.height

    assert high < 1.5 * wide
    assert [box for box in legends for axes in figure.axes if axes.bbox.padded(-1).overlaps(box)] == []
    assert [text for text, box in texts if box.x0 < 0 or box.y0 < 0 or box.x1 > wide or box.y1 > high] == []
    assert [
        (one, other)
        for (one, box), (other, covered) in combinations(texts, 2)
        if min(box.x1, covered.x1) - max(box.x0, covered.x0) > 0.5
        and min(box.y1, covered.y1) - max(box.y0, covered.y0) > 0.5
    ] == []


def test_without_rss() -> None:
    """Where RSS was not recorded, the first metric of the view is drawn."""
    of = run(without=("rss",), stacked=True)

    assert page(of, View(metrics=("anon", "file"))).axes[0].get_ylabel() == "Anon (MiB)"


def test_eight_devices() -> None:
    """The names of many devices are above their lines, and no two lines look the same."""
    columns = {f"device_memory@nvidia{number}": mib(0, 70 + number, 7) for number in range(8)}
    picture = page(session({"rss": mib(100, 300, 200), **columns}), VIEW)
    picture.canvas.draw()
    devices = picture.axes[1]
    legend = devices.get_legend()
    lines = [line for line in devices.get_lines() if len(line.get_xdata()) > 1]

    assert legend is not None
    assert legend.get_window_extent().y0 >= devices.transData.transform((0, 77))[1]
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == len(lines)


def test_idle_on_an_unknown_machine() -> None:
    """A run without CPU time is drawn, also where the number of cores is unknown."""
    of = session(
        {"rss": mib(1, 1), "cpu_user": [0, 0], "cpu_system": [0, 0]},
        host=Host(),
        totals={"cpu_user": 0, "cpu_system": 0},
    )

    assert page(of, VIEW).axes[1].get_ylim() == pytest.approx((0, 1.04))


@pytest.mark.parametrize(
    "case, expected",
    [
        ("0.05 s", "0.100 s of CPU time; the run is too short to show when"),
        pytest.param("60 operations", "… and 36 smaller ones", marks=pytest.mark.long),
        ("threads", "and 5 more"),
    ],
)
def test_notes(case: str, expected: str) -> None:
    """What is not there is said: an unknown figure is a dash and never 0."""
    assert expected in words(case)


@pytest.mark.long
def test_very_many_samples() -> None:
    """However many samples there are, only what can be seen is drawn."""
    memory, cpu, *_ = page(run(number=200_000, length_s=2_000, stacked=True), VIEW).axes
    steps = next(patch for patch in cpu.patches if isinstance(patch, StepPatch)).get_data()

    assert len(memory.lines[0].get_xdata()) <= 4_000
    assert len(steps.values) <= 1_500


def test_the_row_of_the_peak() -> None:
    """Of many operations the one that holds the peak has a row, although it was short."""
    marks = [Mark(name=f"step {place}", start_s=place * 2, end_s=place * 2 + 2) for place in range(29)]
    marks.append(Mark(name="allocates", start_s=58.1, end_s=58.9))
    sizes = {233: 1500, 234: 1500}
    rss = [sizes.get(place, 100) * MIB for place in range(240)]
    of = session({"time_s": [place / 4 for place in range(240)], "rss": rss}, marks=marks, duration_s=60.0)
    texts = [text.get_text() for text in page(of, VIEW).findobj(Text) if isinstance(text, Text)]

    assert "allocates" in texts
