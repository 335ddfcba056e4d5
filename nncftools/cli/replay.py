"""``nncf-tools replay``: shows a recorded run in the live view."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Annotated

import typer

from nncftools.cli import candidates, help_page, options
from nncftools.errors import UsageError
from nncftools.units import MemoryUnit

if TYPE_CHECKING:
    from nncftools.live.follower import Replay

EXAMPLES = """\b
Examples:
  nncf-tools replay
  nncf-tools replay run.json --speed 60

\b
Keys: q quit, space pause, m metric, + and - zoom, l list of processes,
s sort them, / filter them."""

_SLOWEST, _FASTEST = 0.01, 1e6

Source = Annotated[
    pathlib.Path | None,
    typer.Argument(
        metavar="SESSION",
        autocompletion=candidates.sessions,
        readable=False,
        show_default=False,
        help="A session, a journal, a folder (its newest session), latest, or latest~1. Default: latest.",
    ),
]
Speed = Annotated[
    float,
    typer.Option("--speed", metavar="N", help="Seconds of the run to show per second.", rich_help_panel=help_page.SHOW),
]


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.command(name="replay", epilog=EXAMPLES)(replay)


def replay(
    path: Source = None,
    *,
    speed: Speed = 10.0,
    types: options.RecordedTypes = None,
    unit: options.Unit = MemoryUnit.MiB,
    max_size: options.MaxSize = None,
) -> int:
    """Show a recorded run in the live view, at a multiple of its speed."""
    import sys

    from nncftools.cli import opening, screen
    from nncftools.cli.display import look_of
    from nncftools.live import figures, viewer
    from nncftools.live.follower import Replay
    from nncftools.live.shared_terminal import can_draw
    from nncftools.live.viewer import Ended
    from nncftools.metrics import memory_of
    from nncftools.render.view import View

    if not _SLOWEST <= speed <= _FASTEST:
        raise UsageError(f"option --speed: a number from {_SLOWEST:g} to {_FASTEST:,.0f} expected, found {speed:g}")
    with options.reading(max_size):
        session = opening.open_session(path, options.DEFAULT_LOG_DIR)
    available = memory_of(session.samples.metrics)
    metrics = options.memory_types(types, available, ()) if types else []
    look = look_of(View(metrics, unit), sys.stdout.encoding, f"replay ×{speed:g}")
    source = _Faster(Replay(session), speed)
    here = figures.Machine(is_here=False)
    try:
        if can_draw(sys.stdout.fileno()):
            viewer.show(source, look, here, sys.stdout.fileno(), stays=True)
        else:
            viewer.print_status(source, look, here, screen.to_stdout)
    except Ended as ended:
        return ended.status
    except KeyboardInterrupt:
        return 130
    return 0


class _Faster:
    """A replay at ``speed`` times the original speed."""

    def __init__(self, replay: Replay, speed: float) -> None:
        self._replay = replay
        self._speed = speed
        self._now_s = 0.0
        self.run = replay.run

    def step(self, passed_s: float) -> bool:
        """Advance the replay; return whether there is more to show."""
        self._now_s += passed_s * self._speed
        self._replay.advance(self._now_s)
        return not self.run.ended
