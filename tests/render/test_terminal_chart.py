from __future__ import annotations

import pytest

from nncftools.analysis.session import Session
from nncftools.render.terminal_chart import chart
from nncftools.render.terminal_plot import TerminalStyle, render_rows
from nncftools.render.view import View
from tests.made_up import marks, mib, session


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
    of.marks = marks("Export 0-30, Weight Compression 30-59")
    return of


def test_from_zero() -> None:
    """Only what came on top of the first sample is drawn, when that is asked for."""
    lines = drawn(minute(), View(["rss"], from_zero=True))

    assert "◆" not in "\n".join(lines)
    assert "600 MiB ┤" in "\n".join(lines)
    assert "RSS 4.0 MiB" in lines[0]


@pytest.mark.parametrize("columns", [{"rss": []}, {"rss": mib(5)}, {"rss": [None, None]}, {"rss": [0, 0]}])
def test_little_to_draw(columns: dict[str, list[float | None]]) -> None:
    """Without samples, or with nothing known, there is an empty chart."""
    assert len(drawn(session(columns))) == 20
