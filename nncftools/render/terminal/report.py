"""The chart of the live view as a report: as wide and high as the terminal, in what characters and colours it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from nncftools.render.view import View
    from nncftools.session.session import Session

_LOWEST, _HIGHEST = 12, 40
_ELSEWHERE = 24
_PROMPT = 2
"""Lines left for what follows the chart."""


def report(session: Session, view: View) -> _Chart:
    """Return the chart as something that a Rich console prints."""
    return _Chart(session, view)


class _Chart:
    def __init__(self, session: Session, view: View) -> None:
        self._session = session
        self._view = view

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from nncftools.render.terminal.chart import chart

        height = min(max(console.size.height - _PROMPT, _LOWEST), _HIGHEST) if console.is_terminal else _ELSEWHERE
        can = {"unicode": not options.ascii_only, "colour": console.color_system is not None}
        yield chart(self._session, self._view, options.max_width, height, **can)
