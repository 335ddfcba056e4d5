from __future__ import annotations

import pytest

from nncftools.analysis.session import Session
from nncftools.render.terminal_chart import chart
from nncftools.render.terminal_plot import TerminalStyle, render_rows
from nncftools.render.view import View
from nncftools.session.model import Mark
from tests.made_up import mib, session


def drawn(
    of: Session, view: View | None = None, width: int = 80, height: int = 20, *, unicode: bool = True
) -> list[str]:
    """Return the lines of a chart without colours."""
    style = TerminalStyle(unicode=unicode, colours=None)
    rows = render_rows(chart(of, view or View(["rss"]), width, height, style=style), width, None, style)
    return ["".join(part.text for part in row) for row in rows]


def minute() -> Session:
    """Return a minute of memory that rises to a peak above the rest and falls, with two operations."""
    sizes = mib(*[100 + 4 * min(step, 300 - step) + 20 * (step == 150) for step in range(300)])
    cpu = [step / 5 for step in range(300)]
    of = session({"time_s": cpu, "rss": sizes, "anon": sizes, "cpu_user": cpu, "cpu_system": [0.0] * 300})
    of.marks = [Mark(name="Export", start_s=0, end_s=30), Mark(name="Weight Compression", start_s=30, end_s=59)]
    return of


@pytest.mark.parametrize(("width", "height"), [(40, 8), (80, 20), (200, 60)])
def test_fills_its_place(width: int, height: int) -> None:
    """A chart has the size that is asked for."""
    lines = drawn(minute(), width=width, height=height)

    assert len(lines) == height
    assert max(map(len, lines)) <= width


def test_peak_operations_and_rates() -> None:
    """The peak is marked at its time; operations and CPU are aligned with the time axis."""
    lines = drawn(minute())
    peak = next(line for line in lines[1:] if "◆" in line)
    operations = next(line for line in lines if "Operations" in line)

    assert "peak 720.0 MiB at 30.00 s" in lines[0]
    assert abs(peak.index("◆") - operations.index("┤├")) <= 2
    assert "Export" in operations
    assert lines[-2].startswith("Cores   1.00 ")
    assert lines[-1].strip() == "beside the bars: the highest over 0.2 s"


def test_several_metrics_without_colour() -> None:
    """Without colour, metrics have characters of their own."""
    lines = drawn(minute(), View(["rss", "anon"]))

    assert "● RSS" in lines[0]
    assert "o Anon" in lines[0]


def test_ascii() -> None:
    """Where nothing else can be shown, nothing else is."""
    assert "\n".join(drawn(minute(), unicode=False)).isascii()


def test_no_curve_of_zeros() -> None:
    """A metric that is 0 as written has no curve, unless it is the first."""
    of = session({"rss": mib(10, 20), "shmem": [0.0, 4096.0]})

    assert "Shmem" not in drawn(of, View(["rss", "shmem"]))[0]
    assert "Shmem" in drawn(of, View(["shmem"]))[0]


def test_from_zero() -> None:
    """Only what came on top of the first sample is drawn, when that is asked for."""
    lines = drawn(minute(), View(["rss"], from_zero=True))

    assert "◆" not in "\n".join(lines)
    assert "600 MiB ┤" in "\n".join(lines)
    assert "RSS 4.0 MiB" in lines[0]


def test_names_are_harmless() -> None:
    """An operation cannot write to the terminal through its name."""
    of = minute()
    of.marks = [Mark(name="\x1b[2Jevil", start_s=0, end_s=59)]

    assert "\x1b" not in "\n".join(drawn(of))


@pytest.mark.parametrize("columns", [{"rss": []}, {"rss": mib(5)}, {"rss": [None, None]}, {"rss": [0, 0]}])
def test_little_to_draw(columns: dict[str, list[float | None]]) -> None:
    """Without samples, or with nothing known, there is an empty chart."""
    assert len(drawn(session(columns))) == 20
