"""``nncf-tools report``: show and draw a recorded session."""

from __future__ import annotations

import pathlib
from typing import Annotated

import typer

from nncftools.cli import options
from nncftools.errors import NncfToolsError, UsageError
from nncftools.metrics import MEMORY_METRICS
from nncftools.units import MemoryUnit

EXAMPLES = """\b
Examples:
  nncf-tools report
  nncf-tools report run.json --unit GB
  nncf-tools report run.json --plot run.svg --type rss --from-zero
  nncf-tools report memory_logs/latest/session.json --title 'int4, group 64'"""

Source = Annotated[
    pathlib.Path | None,
    typer.Argument(
        metavar="SESSION",
        show_default=False,
        help="A session, a journal, or a folder of them (then the newest); also gzipped. Default: memory_logs.",
    ),
]
Picture = Annotated[
    pathlib.Path | None,
    typer.Option("--plot", "-p", metavar="FILE", help="Also draw memory over time: .png, .svg or .pdf."),
]


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.command(name="report", short_help="Show and draw a recorded run.", epilog=EXAMPLES)(report)


def report(  # noqa: PLR0913 — one parameter per option
    path: Source = None,
    *,
    plot: Picture = None,
    types: options.Types = None,
    unit: options.Unit = MemoryUnit.MiB,
    from_zero: options.FromZero = False,
    title: Annotated[str, typer.Option("--title", metavar="TEXT", help="Instead of the command.")] = "",
    force: options.Force = False,
) -> int:
    """Show what a recorded run cost: peaks, averages, CPU, I/O, processes."""
    from nncftools.cli import destination, screen
    from nncftools.render import text
    from nncftools.render.view import View, printable
    from nncftools.session.model import Session

    if plot is not None:
        plot = _checked_picture(plot, force=force)
    source = path or pathlib.Path("memory_logs")
    session = Session.load(destination.newest_session(source) if path is None or source.is_dir() else source)
    available = [name for name in session.samples.metrics if name in MEMORY_METRICS]
    view = View(options.memory_types(types, available), unit, from_zero=from_zero, title=title)
    screen.put(text.report(session, view))
    if plot is not None:
        from nncftools.render.plot import draw

        try:
            draw(session, view, plot)
        except OSError as error:
            raise NncfToolsError(f"option --plot: cannot write {str(plot)!r}: {error.strerror or error}") from error
        screen.tell(f"\nDrawn to {printable(str(plot))}\n")
    return 0


def _checked_picture(path: pathlib.Path, *, force: bool) -> pathlib.Path:
    from nncftools.cli import destination

    formats = (".png", ".svg", ".pdf")
    if path.suffix.lower() not in formats:
        raise UsageError(f"option --plot: {str(path)!r} does not end in one of {', '.join(formats)}")
    return destination.replaceable("--plot", path, force=force)
