"""The view's frames. ``python -m tests.live.test_layout`` writes ``screens.txt`` again: read the difference."""

from __future__ import annotations

import importlib.metadata
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.cells import cell_len
from rich.color import ColorSystem

from nncftools.analysis.peaks import PeakCandidate
from nncftools.live import figures
from nncftools.live.figures import Machine, ViewSettings, status_line
from nncftools.live.layout import Drawing
from nncftools.live.run import LiveProcess, Run
from nncftools.render.terminal_plot import Span
from tests.live.made_up import MIB, run
from tests.made_up_stacks import frame as frame_of
from tests.sampler.grouped import Machine as Grouped

RICH = tuple(map(int, importlib.metadata.version("rich").split(".")[:2]))
GOLDEN = Path(__file__).with_name("screens.txt")
PLAIN = ViewSettings(colours=None)
KEYS = ViewSettings(colours=None, keys=True, state="recording")
HERE = Machine(is_here=False)
SIZES = [(30, 4), (40, 9), (80, 8), (80, 24), (120, 12), (200, 60)]


def made(operation: str = "", grown: str = "", ago_s: float = 0.0, **facts: float) -> Run:
    """Return a run in which an operation goes on, and whose memory grew in a function so many seconds ago."""
    of = run(**facts)  # type: ignore[arg-type] # sizes are whole
    if operation:
        of.operations = [Span("Load", 10.0, 50.0), Span(operation, 50.0)]
    if grown:
        of.grown = frame_of(grown), of.latest_s - ago_s
    return of


def begun() -> Run:
    """Return a run without samples; a high-water mark is known, but not its time."""
    of = run(seconds=0)
    of.reach("rss", PeakCandidate(150 * MIB, 150 * MIB, None, None))
    return of


def ended() -> Run:
    """Return a run that has ended."""
    of = run()
    of.ended = True
    return of


def unusual() -> Run:
    """Return a run with wide characters, a metric along the axis, and all figures of processes."""
    of = Run("量化 --名 ä" + "量化" * 80, ["rss", "anon", "shmem"], 0.1, run().host)
    of.take_samples(np.array([[at_s, 50.0 * MIB, MIB, 0.1 * MIB] for at_s in range(5)]))
    of.operations = [Span("Größe · 大きさ", 1.0, None)]
    of.processes = {
        0: LiveProcess(100, "python3", 300 * MIB, ["python3", "/opt/train.py", "--rank", "0"], cpu=0.5),
        1: LiveProcess(101, "python3", 100 * MIB, ["python3", "/opt/train.py", "--rank", "1"], cpu=1.934),
        2: LiveProcess(9, "optimum-cli", command=["optimum-cli", "export", "x" * 120], most=1299 * MIB),
    }
    return of


def after(keys: str) -> ViewSettings:
    """Return the settings after these keys."""
    look = KEYS
    for key in keys:
        look = figures.apply_key(look, key, 8)
    return look


PLACE = "torch/jit/_trace.py:455 _check_trace"
SCREENS: dict[str, tuple[Run, ViewSettings, int, int]] = {
    "recording": (run(), KEYS, 80, 24),
    "just begun": (begun(), KEYS, 80, 24),
    "ended": (ended(), PLAIN, 80, 24),
    "operations": (made("Weight Compression"), PLAIN, 80, 24),
    "operations on a small screen": (made("Weight Compression"), PLAIN, 40, 15),
    "operations on a large screen": (made("Weight Compression"), PLAIN, 120, 40),
    "unusual": (unusual(), PLAIN, 80, 24),
    "unusual in ASCII": (unusual(), replace(KEYS, unicode=False, state="replay ×3"), 80, 24),
    "machine is nearly full": (run(memory=3 << 30), PLAIN, 80, 12),
    "machine is nearly full on a small screen": (run(memory=3 << 30), PLAIN, 40, 9),
    "near the limit": (run(limit=300 * MIB), PLAIN, 80, 24),
    "above the limit": (run(limit=190 * MIB), PLAIN, 80, 12),
    "far below the limit": (run(limit=6000 * MIB), PLAIN, 80, 12),
    "limit above the machine": (run(limit=9000 * MIB), PLAIN, 80, 12),
    "grows": (made(grown=PLACE), PLAIN, 80, 12),
    "grew": (made(grown=PLACE, ago_s=65), PLAIN, 80, 12),
    "grows in an operation": (made("Export", PLACE), PLAIN, 110, 12),
    "grows, 68 columns": (made(grown=PLACE), PLAIN, 68, 8),
    "grows, 58 columns": (made(grown=PLACE), PLAIN, 58, 8),
    "grows, 46 columns": (made(grown=PLACE), PLAIN, 46, 8),
    "help": (run(), after("?"), 80, 24),
    "help on a small screen": (run(), after("?"), 40, 40),
    "scrolled after help": (run(), after("??jjk"), 80, 24),
    "scrolled by a page after the first": (run(), after("kJ"), 80, 24),
    "256 colours": (made("Export", limit=300 * MIB), ViewSettings(colours=ColorSystem.EIGHT_BIT, keys=True), 60, 15),
    "16 colours": (made("Export", limit=300 * MIB), ViewSettings(colours=ColorSystem.STANDARD, keys=True), 60, 15),
    "all colours": (made("Export", limit=300 * MIB), ViewSettings(colours=ColorSystem.TRUECOLOR, keys=True), 60, 15),
}


def draw(of: Run, look: ViewSettings, width: int, height: int) -> list[str]:
    """Return a drawn view; without colours, escape sequences are left out."""
    lines = Drawing(HERE).frame(of, look, width, height)
    return lines if look.colours else [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]


def screen(name: str) -> str:
    """Return a section of the golden file: a view and its status line."""
    of, look, width, height = SCREENS[name]
    lines = [*draw(of, look, width, height), status_line(of, look, HERE)]
    return "\n".join(line.replace("\x1b", "ESC") for line in lines)


def read_golden() -> dict[str, str]:
    """Return the sections by name."""
    sections = GOLDEN.read_text(encoding="utf-8").split("\n=== ")[1:]
    return {name: text for name, _, text in (section.partition("\n") for section in sections)}


@pytest.mark.skipif(RICH < (14, 3), reason="older ones give columns other widths")
@pytest.mark.parametrize("name", SCREENS)
def test_screens(name: str) -> None:
    """Each screen is as in the golden file; each line has the width of the screen."""
    _, look, width, _ = SCREENS[name]

    assert screen(name) == read_golden()[name]
    assert look.colours or {cell_len(line) for line in screen(name).split("\n")[:-1]} == {width}


def test_no_blank_row_after_a_process() -> None:
    """The row of a process that has ended goes to the chart at once."""
    of = run()
    drawing = Drawing(HERE)
    for number in range(8):
        lines = drawing.frame(of, PLAIN, 80, 24)
        if number < 7:
            del of.processes[number]
    (last,) = [number for number, line in enumerate(lines) if "worker-7" in line]

    assert "Machine" in lines[last + 1]


def test_axis_of_time() -> None:
    """While memory is flat, the curve goes on to now, and the chart is not drawn again where it would look the same."""
    of = Run("sleep", ["rss"], 0.1, run().host)
    widths = []
    drawing = Drawing(HERE)
    for end_s in (10.0, 20.0, 40.0):
        time_s = np.arange(of.latest_s, end_s, 0.1)
        of.take_samples(np.stack([time_s, np.full(len(time_s), 5.0 * MIB)], axis=1))
        lines = drawing.frame(of, PLAIN, 80, 24)
        axis = next(line for line in lines if re.search("│ +0:00 ", line))
        widths.append((max(len(re.findall(r"[⠁-⣿]", line)) for line in lines), re.findall(r"\d:\d\d", axis)[-1]))

    assert min(width for width, _ in widths) >= 0.75 * 63
    assert [moment for _, moment in widths] == ["0:10", "0:20", "0:40"]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("look", [PLAIN, replace(KEYS, listing=True), replace(KEYS, helping=True)])
def test_fits_any_screen(size: tuple[int, int], look: ViewSettings) -> None:
    """A view has as many lines as it was given room, none of them too wide."""
    width, height = size
    lines = draw(made("Export"), look, width, height)

    assert len(lines) == height
    assert max(map(cell_len, lines)) <= width


def test_available_to_the_group(tmp_path: Path) -> None:
    """If the control group has less than the machine, this is available; it is asked for once a second."""
    grouped = Grouped(tmp_path)
    (grouped.proc / "1007").symlink_to(grouped.proc / "7")
    grouped.belongs_to_v2({"/job": 300 * MIB}, used=210 * MIB)
    here, of = Machine(is_here=True, proc=str(grouped.proc)), run(limit=300 * MIB)

    assert figures.memory_left(of, here.available(of)).amount.startswith("200 of 300 MiB, 67 %; 90 MiB available")
    grouped.charge("cg/job", "memory.current", 0)
    assert here.available(of) == 90 * MIB


def test_hostile_names() -> None:
    """A command, process, operation or function cannot write to the terminal through its name."""
    of = made("\x1b[2Jop", "/a/\x1b[2J.py:1 " + "f\x07" * 300)
    of.command = "evil \x1b]0;title\x07"
    of.processes[0].command = ["\x1b[2J", "\x1b[3J"]
    text = "".join(Drawing(HERE).frame(of, KEYS, 80, 24)) + status_line(of, KEYS, HERE)

    assert not re.search(r"\x07|\x1b(?!\[[0-9;]*m)", text)


if __name__ == "__main__":
    GOLDEN.write_text("".join(f"\n=== {name}\n{screen(name)}" for name in SCREENS), encoding="utf-8")
