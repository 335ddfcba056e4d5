from __future__ import annotations

import pathlib
import re

import numpy as np
import pytest
from rich.cells import cell_len
from rich.color import ColorSystem

from nncftools.live import figures
from nncftools.live.figures import Machine, ViewSettings, status_line
from nncftools.live.layout import Drawing
from nncftools.live.run import Run
from nncftools.render import terminal_plot
from nncftools.render.terminal_plot import Span
from tests.live.made_up import MIB, run
from tests.made_up_stacks import frame as frame_of
from tests.sampler.grouped import Machine as Grouped

LOOK = ViewSettings()


def more(of: Run, seconds: float, rss: float) -> None:
    """Let a run go on for some time."""
    values = dict.fromkeys(of.columns, 0.0) | of.latest | {"rss": rss}
    of.take_samples(np.array([[of.latest_s + seconds, *(values[name] for name in of.columns)]]))


PLAIN = ViewSettings(colours=None)
KEYS = ViewSettings(colours=None, keys=True, state="recording")
SIZES = [(width, height) for width in (30, 40, 80, 120, 200) for height in (4, 8, 9, 12, 15, 24, 40, 60)]
DEPTHS = {
    "none": (None, r"\x1b\[[0-9;]*3[0-9]"),
    "16": (ColorSystem.STANDARD, r"\x1b\[[0-9;]*[34]8;[25]"),
    "256": (ColorSystem.EIGHT_BIT, r"\x1b\[[0-9;]*[34]8;2"),
}


def painted(of: Run, look: ViewSettings = PLAIN, width: int = 80, height: int = 24) -> list[str]:
    """Return a drawn view."""
    return Drawing(Machine(is_here=False)).frame(of, look, width, height)


def frame(of: Run, look: ViewSettings = PLAIN, width: int = 80, height: int = 24) -> list[str]:
    """Return a drawn view without escape sequences."""
    return [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in painted(of, look, width, height)]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_double_width_command(width: int) -> None:
    """A command whose characters take two columns moves nothing on its right."""
    of = run()
    of.command = "量化" * 80
    of.operations = [Span("量化" * 30, 1.0, None)]

    assert {cell_len(line) for line in frame(of, PLAIN, width, 24)} == {width}
    assert "  1:39" in frame(of, PLAIN, width, 24)[0]


def test_no_blank_row_after_a_process() -> None:
    """The row of a process that has ended goes to the chart at once."""
    of = run()
    drawing = Drawing(Machine(is_here=False))
    for number in range(8):
        drawing.frame(of, PLAIN, 80, 24)
        if number < 7:
            del of.processes[number]
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in drawing.frame(of, PLAIN, 80, 24)]
    (last,) = [number for number, line in enumerate(lines) if "worker-7" in line]

    assert "Machine" in lines[last + 1]


def test_drawn_again_only_when_something_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chart that would look the same is not drawn again; a change of memory is seen at once."""
    of, drawing, drawn = run(seconds=1000), Drawing(Machine(is_here=False)), []
    load = terminal_plot.load_plotext
    monkeypatch.setattr(terminal_plot, "load_plotext", lambda: drawn.append(1) or load())
    for rss in (of.latest["rss"], of.latest["rss"], 4000 * MIB):
        more(of, 0.1, rss)
        drawing.frame(of, LOOK, 80, 24)

    assert len(drawn) == 2


def test_rates_of_now() -> None:
    """The figure of a rate is always that of the last second."""
    of = run(seconds=1000)
    before = frame(of)
    more(of, 2.0, 200 * MIB)

    assert any("Cores   1.00 " in row for row in before)
    assert any("Cores   0.00 " in row for row in frame(of))


def last(of: Run) -> str:
    """Return the row about the machine's memory or the limit."""
    return frame(of)[-2].strip("│ ")


def with_operation(of: Run, name: str = "Weight Compression", start_s: float = 40) -> Run:
    """Return a run in which an operation goes on."""
    of.operations = [*of.operations, Span(name, start_s)]
    return of


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize(
    "look",
    [
        ViewSettings(),
        ViewSettings(keys=True, listing=True),
        ViewSettings(keys=True, helping=True),
        ViewSettings(unicode=False, colours=None),
    ],
    ids=["chart", "list", "help", "ASCII"],
)
def test_fits_any_screen(width: int, height: int, look: ViewSettings) -> None:
    """A view has as many lines as it was given room, none of them too wide."""
    lines = frame(with_operation(run()), look, width, height)

    assert len(lines) == height
    assert max(map(cell_len, lines)) <= width


def test_what_stands_there() -> None:
    """The screen shows command, memory, peak, chart, rates, processes, the machine's memory and the keys.

    Memory came within 1 % of its peak a second before.
    """
    text = "\n".join(frame(run(), KEYS))

    for expected in (
        "─ work --fast ─",
        "● recording  1:39 ─╮",
        "◆ peak 199.9 MiB at 1:38",
        "CPU 1.00 cores",
        "2 processes",
    ):
        assert expected in text
    for expected in (
        "200 MiB ┤",
        "0 MiB ┤",
        "  0:00  ",
        "Write",
        "Processes 8 by memory ──",
        "1000 worker-0 ",
        "o Anon 100.0 MiB",
    ):
        assert expected in text
    assert "│ Machine  5.8 GiB available of 8.0 GiB " in text
    assert "╰─ q quit   ? help   space pause   l list   m metric   ↑ ↓ scroll ─" in text


def rows_of_chart(width: int, height: int, look: ViewSettings = PLAIN) -> int:
    """Return how many rows the chart has above the axis of time."""
    lines = frame(with_operation(run()), look, width, height)
    first = next(place for place, line in enumerate(lines) if "Now " in line) + 1
    return next(place for place, line in enumerate(lines) if " 0 MiB ┤" in line) - first + 1


@pytest.mark.parametrize(
    ("size", "least"), [((40, 9), 3), ((40, 15), 3), ((80, 14), 4), ((80, 24), 7), ((120, 40), 18), ((200, 60), 30)]
)
def test_chart_grows_with_the_screen(size: tuple[int, int], least: int) -> None:
    """The chart takes the height that there is; there is one on the smallest screen, too."""
    assert rows_of_chart(*size) >= least


@pytest.mark.parametrize("depth", DEPTHS)
def test_colours_that_the_terminal_has(depth: str) -> None:
    """Without colours, and with 16 or 256, there is no sequence for more of them."""
    colours, forbidden = DEPTHS[depth]
    text = "".join(painted(with_operation(run(limit=300 * MIB)), ViewSettings(colours=colours, keys=True)))

    assert not re.search(forbidden, text)
    assert "\x1b[" in text


def test_curve_is_brighter_than_the_axis() -> None:
    """The curve has a colour of its own and the axis is grey, whatever the terminal shows."""
    true = "".join(painted(run(), ViewSettings(colours=ColorSystem.TRUECOLOR)))
    few = "".join(painted(run(), ViewSettings(colours=ColorSystem.STANDARD)))

    assert re.search(r"\x1b\[38;2;0;152;240m[⠀-⣿]", true)
    assert re.search(r"\x1b\[38;2;120;120;120m[^\x1b]*┤", true)
    assert re.search(r"\x1b\[36m[⠀-⣿]", few)
    assert re.search(r"\x1b\[90m[^\x1b]*┤", few)


def test_axis_runs_on_when_memory_is_flat() -> None:
    """While memory does not change, the curve goes on to the moment that the title names."""
    of = Run("sleep", ["rss"], 0.1, run().host)
    widths = []
    drawing = Drawing(Machine(is_here=False))
    for end_s in (10.0, 20.0, 40.0):
        time_s = np.arange(of.latest_s, end_s, 0.1)
        of.take_samples(np.stack([time_s, np.full(len(time_s), 5.0 * MIB)], axis=1))
        lines = drawing.frame(of, PLAIN, 80, 24)
        axis = next(line for line in lines if re.match("│ +0:00 ", line))
        widths.append((max(len(re.findall(r"[⠁-⣿]", line)) for line in lines), re.findall(r"\d:\d\d", axis)[-1]))

    assert min(width for width, _ in widths) >= 0.75 * 63
    assert [moment for _, moment in widths] == ["0:10", "0:20", "0:40"]


def test_figures_of_the_chart_are_those_of_the_header() -> None:
    """There is one legend: each metric and its figure once, and the top of the axis is above the peak."""
    lines = frame(run())

    assert sum("RSS 199.9 MiB" in line for line in lines) == 1
    assert sum("Anon 100.0 MiB" in line for line in lines) == 1
    assert "200 MiB ┤" in lines[3]


def test_metrics_along_the_axis_are_left_out() -> None:
    """A curve along the axis says nothing."""
    of = Run("work", ["rss", "anon", "shmem"], 0.1, run().host)
    of.take_samples(np.array([[at_s, 50.0 * MIB, MIB, 0.1 * MIB] for at_s in range(5)]))

    assert "Anon 1.0 MiB" in "\n".join(frame(of))
    assert "Shmem" not in "\n".join(frame(of))


def test_chart_of_a_run_that_has_ended_fills_its_width() -> None:
    """Nothing comes any more: the axis ends with the run."""
    of = run()
    of.ended = True
    widest = max(len(re.findall(r"[⠁-⣿ox]", line)) for line in frame(of))

    assert widest >= 62


def test_time_left() -> None:
    """When memory will soon be exhausted, the last line says when; not while nine tenths of it are free."""
    assert last(run(memory=3 << 30)).endswith(" 824.1 MiB available of 3.0 GiB, exhausted in about 14 min")
    assert frame(run(memory=3 << 30), width=40)[-1].startswith("Machine  exhausted in about 14 min")
    assert "exhausted" not in last(run())
    assert "exhausted" not in last(run(limit=6000 * MIB))


def test_share_of_the_limit() -> None:
    """A limit below the machine's memory is shown with the share of it."""
    here = Machine(is_here=False)

    assert last(run(limit=8000 * MIB)).startswith("Limit  0.2 of 7.81 GiB, 2 %; 5.8 GiB available ")
    assert "limit 0.2 of 7.81 GiB, 2 %; 5.8 GiB available" in status_line(run(limit=8000 * MIB), PLAIN, here)
    assert "Machine  5.8 GiB available of 8.0 GiB" in last(run(limit=9000 * MIB))


def test_time_left_to_the_limit() -> None:
    """The limit is exhausted before the machine: at 1 MiB a second, 100 MiB last for 100 s."""
    assert "; 100 MiB available, exhausted in about 100 s" in last(run(limit=300 * MIB))
    assert "exhausted" not in last(run(limit=190 * MIB))


def test_available_to_the_group(tmp_path: pathlib.Path) -> None:
    """If the control group has less than the machine, this is available; it is asked for once a second."""
    grouped = Grouped(tmp_path)
    (grouped.proc / "1000").symlink_to(grouped.proc / "7")
    grouped.belongs_to_v2({"/job": 300 * MIB}, used=210 * MIB)
    here, of = Machine(is_here=True, proc=str(grouped.proc)), run(limit=300 * MIB)

    assert figures.memory_left(of, here.available(of)).amount.startswith("200 of 300 MiB, 67 %; 90 MiB available")
    grouped.charge("cg/job", "memory.current", 0)
    assert here.available(of) == 90 * MIB


@pytest.mark.parametrize(("size", "number"), [(300 * MIB, 1), (1000 * MIB, 0)], ids=["near", "far above the peak"])
def test_line_of_the_limit(size: int, number: int) -> None:
    """The limit has a line when memory has come to half of it, as in pictures."""
    lines = [line for line in frame(run(limit=size)) if "┤─ limit " in line]

    assert len(lines) == number
    assert all("limit 300 MiB ─────────" in line for line in lines)


def test_operations() -> None:
    """What goes on is named above, and along the time axis."""
    lines = frame(with_operation(run()))

    assert "Now Weight Compression, for 1 min 00 s" in lines[2]
    assert any("├" in line and "Weight Compression" in line and line.index("├") > 30 for line in lines)


def test_operations_are_a_coloured_band() -> None:
    """Each operation has its colour, and its name where there is room."""
    of = run()
    of.operations = [Span("Export", 20.0, 60.0)]
    with_operation(of, "Weight Compression", 60.0)
    band = next(line for line in painted(of, ViewSettings(colours=ColorSystem.TRUECOLOR)) if "Operations" in line)

    assert re.search(r"\x1b\[38;2;0;0;0;48;2;230;159;0m +Export +\x1b\[0m", band)
    assert re.search(r"48;2;0;114;178m +Weight Compression +\x1b\[0m", band)


def test_ascii() -> None:
    """Where nothing else can be shown, nothing else is: not of names, either."""
    of = with_operation(run(), "Größe · 大きさ")
    of.command = "work --名 ä"

    assert "\n".join(frame(of, ViewSettings(unicode=False, colours=None, keys=True, state="replay ×3"))).isascii()


def test_no_colour() -> None:
    """Without colours, each curve has its own character."""
    assert any("● RSS" in line for line in frame(run()))
    assert any("o Anon" in line for line in frame(run()))
    assert sum("oooo" in line for line in frame(run())) > 2


def test_control_characters_of_names_are_harmless() -> None:
    """A command or process cannot write to the terminal through its name, its arguments or an operation."""
    of = with_operation(run(), "\x1b[2Jop")
    of.command = "evil \x1b]0;title\x07"
    of.processes[0].command = ["\x1b[2J", "\x1b[3J"]
    text = "".join(painted(of, KEYS))

    assert "\x1b]" not in text
    assert "\x1b[2J" not in text
    assert "\x1b[3J" not in text


def test_status_line() -> None:
    """One plain line shows time, memory with its peak, CPU, and the available memory."""
    text = status_line(run(), PLAIN, Machine(is_here=False))

    assert text.startswith(
        "1:39; RSS 199.9 MiB, peak 199.9 MiB at 1:38; CPU 1.00 cores, 2 processes; 5.8 GiB available"
    )


def test_run_without_samples() -> None:
    """A run that has just begun can be drawn."""
    assert len(frame(run(seconds=0))) == 24


def test_operation_of_the_peak() -> None:
    """The peak is named with its moment and its operation, as in the report."""
    of = with_operation(run(), "Export", 50.0)

    assert "; RSS 199.9 MiB, peak 199.9 MiB at 1:38 in Export; " in status_line(of, PLAIN, Machine(is_here=False))
    assert "◆ peak 199.9 MiB at 1:38 in Export" in frame(of)[1]


class TestGrowth:
    def growing(self, ago_s: float = 0.0, place: str = "torch/jit/_trace.py:455 _check_trace") -> Run:
        """Return a run whose memory grew so many seconds ago in a function."""
        of = run()
        of.grown = frame_of(place), of.latest_s - ago_s
        return of

    def test_alone(self) -> None:
        """Without operations, the code in which memory grows has a line."""
        assert "│ Grows in torch/jit/_trace.py:455 _check_trace " in frame(self.growing())[2]

    def test_beside_the_operation(self) -> None:
        """It stands beside the current operation."""
        of = with_operation(self.growing(), "Export", 50.0)

        assert "│ Now Export, for 50 s   grows in torch/jit/_trace.py:455 _check_trace " in frame(of, width=110)[2]

    def test_in_the_past(self) -> None:
        """Growth that has ended is told with its age."""
        assert "│ Grew in torch/jit/_trace.py:455 _check_trace, 1:05 ago " in frame(self.growing(65))[2]

    @pytest.mark.parametrize(
        ("width", "expected"),
        [
            (68, "Grows in torch/jit/_trace.py:455 _check_trace"),
            (58, "Grows in _trace.py:455 _check_trace"),
            (46, "Grows in _check_trace"),
        ],
    )
    def test_narrow(self, width: int, expected: str) -> None:
        """Where there is little room, the folder is left out, then the file."""
        assert frame(self.growing(), width=width)[2].startswith(f"{expected} ", 0 if width < 60 else 2)

    def test_hostile_name(self) -> None:
        """A name cannot write to the terminal, and no line is too wide."""
        lines = frame(self.growing(place="/a/\x1b[2J.py:1 " + "f\x07" * 300), ViewSettings(colours=None))

        assert not any("\x1b" in line or "\x07" in line for line in lines)
        assert max(map(cell_len, lines)) <= 80

    def test_status_line(self) -> None:
        """The plain line has it, too."""
        assert "; grows in torch/jit/_trace.py:455 _check_trace; " in status_line(
            self.growing(), PLAIN, Machine(is_here=False)
        )


class TestKeys:
    def screen(self, *keys: str, width: int = 80, height: int = 30, **settings: bool) -> list[str]:
        """Return the lines of a view with eight processes after these keys."""
        look = ViewSettings(keys=True, **settings)
        for key in keys:
            look = figures.apply_key(look, key, 8)
        lines = Drawing(Machine(is_here=False)).frame(run(), look, width, height)
        return [re.sub(r"\x1b\[[^m]*m", "", line) for line in lines]

    def workers(self, *keys: str) -> list[int]:
        """Return the numbers of the processes on the screen."""
        found = (re.search(r"worker-(\d)", line) for line in self.screen(*keys))
        return [int(match[1]) for match in found if match]

    def test_scrolling(self) -> None:
        """The list goes down and up by one, stops at its ends, and says where it begins."""
        first = self.workers()

        assert first == [0, 1, 2, 3]
        assert self.workers("j") == [1, 2, 3, 4]
        assert self.workers("j", "j", "k") == [1, 2, 3, 4]
        assert self.workers("k") == first
        assert self.workers("J") == [4, 5, 6, 7]
        assert any("from number 2" in line for line in self.screen("j"))

    def test_help(self) -> None:
        """``?`` says what the keys do, and goes away with the next one."""
        shown = "\n".join(self.screen("?"))

        assert "scroll the processes" in shown
        assert "quit; a recording goes on" in shown
        narrow = " ".join(line.strip() for line in self.screen("?", width=40, height=40))
        assert "scroll the processes; Page Up and Page Down by ten" in narrow
        assert "scroll the processes" not in "\n".join(self.screen("?", "?"))

    @pytest.mark.parametrize("height", [12, 16, 20, 24])
    def test_help_where_there_is_little_room(self, height: int) -> None:
        """Help leaves the frame as high as the screen."""
        assert len(self.screen("?", height=height)) == height
