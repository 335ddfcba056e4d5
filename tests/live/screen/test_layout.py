from __future__ import annotations

import pathlib
import re

import pytest
from rich.cells import cell_len

from nncftools.live.screen import figures
from nncftools.live.screen.figures import Machine, status_line
from nncftools.live.screen.layout import Drawing
from nncftools.live.screen.look import Look, after
from nncftools.live.state.operations import LiveOperations
from nncftools.live.state.run import Run
from nncftools.marks.entries import Entry
from tests.live.made_up import MIB, run
from tests.made_up_stacks import frame as frame_of
from tests.sampler.grouped import Machine as Grouped

PLAIN = Look(colour=False)
SIZES = [(width, height) for width in (30, 80, 120, 200) for height in (4, 8, 12, 24, 40, 60)]


def frame(of: Run, look: Look = PLAIN, width: int = 80, height: int = 24) -> list[str]:
    """Return a drawn view without escape sequences."""
    lines = Drawing(Machine(is_here=False)).frame(of, look, width, height)
    return [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("look", [Look(), Look(keys=True, listing=True), Look(unicode=False, colour=False)])
def test_fits_any_screen(width: int, height: int, look: Look) -> None:
    """A view has as many lines as it was given room, none of them too wide."""
    lines = frame(run(), look, width, height)

    assert len(lines) == height
    assert max(map(cell_len, lines)) <= width


def test_what_stands_there() -> None:
    """The screen shows command, memory, peak, chart, rates, processes, the machine's memory and the keys."""
    text = "\n".join(frame(run(), Look(keys=True, state="recording", colour=False)))

    for expected in ("work --fast", "recording  1:39", "peak 199.9 MiB at 1:39", "CPU 100 %", "2 processes"):
        assert expected in text
    for expected in (
        "┤",
        "◆",
        "Write",
        "worker-0",
        "5.8 GiB available of 8.0 GiB",
        "q quit",
    ):
        assert expected in text


def test_time_left() -> None:
    """When memory will soon be exhausted, the last line says when."""
    assert "exhausted in about 14 min at this rate" in frame(run(memory=3 << 30))[-1]
    assert "exhausted" not in frame(run())[-1]


def test_share_of_the_limit() -> None:
    """A limit below the machine's memory is shown with the share of it."""
    here = Machine(is_here=False)

    assert frame(run(limit=8000 * MIB))[-1].rstrip() == "Limit  0.2 of 7.81 GiB, 2 %; 5.8 GiB available"
    assert "limit 0.2 of 7.81 GiB, 2 %; 5.8 GiB available" in status_line(run(limit=8000 * MIB), PLAIN, here)
    assert "Machine  5.8 GiB available of 8.0 GiB" in frame(run(limit=9000 * MIB))[-1]


def test_time_left_to_the_limit() -> None:
    """The limit is exhausted before the machine: at 1 MiB a second, 100 MiB last for 100 s."""
    assert frame(run(limit=300 * MIB))[-1].rstrip().endswith("; 100 MiB available, exhausted in about 100 s")
    assert "exhausted" not in frame(run(limit=190 * MIB))[-1]


def test_available_to_the_group(tmp_path: pathlib.Path) -> None:
    """If the control group has less than the machine, this is available; it is asked for once a second."""
    grouped = Grouped(tmp_path)
    (grouped.proc / "1000").symlink_to(grouped.proc / "7")
    grouped.belongs_to_v2({"/job": 300 * MIB}, used=210 * MIB)
    here, of = Machine(is_here=True, proc=str(grouped.proc)), run(limit=300 * MIB)

    assert figures.memory_left(of, here.available(of))[1].startswith("200 of 300 MiB, 67 %; 90 MiB available")
    grouped.charge("cg/job", "memory.current", 0)
    assert here.available(of) == 90 * MIB


def test_operations() -> None:
    """What goes on is named above, and along the time axis."""
    of = run()
    assert isinstance(of.operations, LiveOperations)
    of.operations.take(Entry(name="Weight Compression", start_s=40, event="begin", op=1, pid=1, tid=1))
    lines = frame(of)

    assert "Now Weight Compression, for 59.90 s" in lines[2]
    assert any("├" in line and "Weight Compression" in line and line.index("├") > 30 for line in lines)


def test_ascii() -> None:
    """Where nothing else can be shown, nothing else is."""
    assert "\n".join(frame(run(), Look(unicode=False, colour=False))).isascii()


def test_no_colour() -> None:
    """Without colours, each line of a chart has its own character."""
    lines = Drawing(Machine(is_here=False)).frame(run(), Look(colour=False), 80, 24)

    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", "".join(lines))
    assert any("* RSS" in line and "o Anon" in line for line in frame(run()))


def test_metrics_in_turn() -> None:
    """The key m shows the metrics of the run together, then each alone, those of the machine, too."""
    look = PLAIN
    shown = []
    for _ in range(5):
        shown.append(look.chart(run().columns))
        look = after(look, "m")

    assert shown == [["rss", "anon"], ["rss"], ["anon"], ["system"], ["rss", "anon"]]


def test_metric_that_was_asked_for() -> None:
    """Metrics that were asked for come first."""
    assert Look(metrics=["system"]).chart(["rss", "system"]) == ["system"]


def test_zoom() -> None:
    """Zoomed in, the axis begins later."""
    zoomed = "\n".join(frame(run(), after(PLAIN, "+")))

    assert " 0:00 " in "\n".join(frame(run()))
    assert " 0:00 " not in zoomed
    assert after(after(PLAIN, "+"), "-") == PLAIN


def test_other_keys_change_nothing() -> None:
    """A key that means nothing does nothing."""
    assert after(PLAIN, "x") == PLAIN


def test_control_characters_of_names_are_harmless() -> None:
    """A command or process cannot write to the terminal through its name."""
    of = run()
    of.command = "evil \x1b]0;title\x07"
    of.processes[0].name = "\x1b[2J"

    assert "\x1b]" not in "".join(Drawing(Machine(is_here=False)).frame(of, PLAIN, 80, 24))
    assert "\x1b[2J" not in "".join(Drawing(Machine(is_here=False)).frame(of, PLAIN, 80, 24))


def test_chart_costs_no_more_than_its_share() -> None:
    """A chart that was drawn just now is not drawn again, though the figures above it are."""
    of = run()
    drawing = Drawing(Machine(is_here=False))
    first = drawing.frame(of, PLAIN, 80, 24)
    of.latest["rss"] = 5.0 * 2**20
    drawing._after_s = float("inf")
    second = drawing.frame(of, PLAIN, 80, 24)

    assert first[1] != second[1]
    assert first[3:12] == second[3:12]


def test_status_line() -> None:
    """One plain line shows time, memory with its peak, CPU, and the available memory."""
    text = status_line(run(), PLAIN, Machine(is_here=False))

    assert text.startswith("1:39; RSS 199.9 MiB, peak 199.9 MiB at 1:39; CPU 100 %, 2 processes; 5.8 GiB available")


def test_run_without_samples() -> None:
    """A run that has just begun can be drawn."""
    assert len(frame(run(seconds=0))) == 24


def test_operation_of_the_peak() -> None:
    """The peak is named with its operation, as in the report."""
    of = run()
    begin = Entry(name="Export", event="begin", op=1, pid=1, tid=1, start_s=50.0)
    assert isinstance(of.operations, LiveOperations)
    of.operations.take(begin)

    assert figures.memory(of, Look()).endswith("peak 199.9 MiB at 1:39 during Export")


class TestGrowth:
    def growing(self, ago_s: float = 0.0, place: str = "torch/jit/_trace.py:455 _check_trace") -> Run:
        """Return a run whose memory grew so many seconds ago in a function."""
        of = run()
        of.grown = frame_of(place), of.latest_s - ago_s
        return of

    def test_alone(self) -> None:
        """Without operations, the code in which memory grows has a line."""
        assert frame(self.growing())[2].rstrip() == "Grows in torch/jit/_trace.py:455 _check_trace"

    def test_beside_the_operation(self) -> None:
        """It stands beside the current operation."""
        of = self.growing()
        assert isinstance(of.operations, LiveOperations)
        of.operations.take(Entry(name="Export", event="begin", op=1, pid=1, tid=1, start_s=50.0))

        assert frame(of)[2].rstrip() == "Now Export, for 49.90 s   grows in torch/jit/_trace.py:455 _check_trace"

    def test_in_the_past(self) -> None:
        """Growth that has ended is told with its age."""
        assert frame(self.growing(65))[2].rstrip() == "Grew in torch/jit/_trace.py:455 _check_trace, 1:05 ago"

    @pytest.mark.parametrize(
        ("width", "expected"),
        [
            (46, "Grows in torch/jit/_trace.py:455 _check_trace"),
            (40, "Grows in _trace.py:455 _check_trace"),
            (25, "Grows in _check_trace"),
        ],
    )
    def test_narrow(self, width: int, expected: str) -> None:
        """Where there is little room, the folder is left out, then the file."""
        assert frame(self.growing(), width=width)[2].rstrip() == expected

    def test_hostile_name(self) -> None:
        """A name cannot write to the terminal, and no line is too wide."""
        lines = frame(self.growing(place="/a/\x1b[2J.py:1 " + "f\x07" * 300))

        assert not any("\x1b" in line or "\x07" in line for line in lines)
        assert max(map(cell_len, lines)) <= 80

    def test_status_line(self) -> None:
        """The plain line has it, too."""
        assert "; grows in torch/jit/_trace.py:455 _check_trace; " in status_line(
            self.growing(), PLAIN, Machine(is_here=False)
        )
