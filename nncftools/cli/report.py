"""``nncf-tools report``: show and draw a recorded session."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Annotated

import typer

from nncftools.cli import options
from nncftools.errors import NncfToolsError, UsageError
from nncftools.metrics import MEMORY_METRICS
from nncftools.units import MemoryUnit

if TYPE_CHECKING:
    from nncftools.render.view import View
    from nncftools.session.model import Session

EXAMPLES = """\b
Examples:
  nncf-tools report
  nncf-tools report run.json --unit GB
  nncf-tools report run.json --marks operations.csv --panels run.pdf
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
Panels = Annotated[
    pathlib.Path | None,
    typer.Option("--panels", metavar="FILE", help="Also draw memory, CPU, I/O and operations: .png, .svg or .pdf."),
]
Marks = Annotated[
    list[pathlib.Path] | None,
    typer.Option("--marks", metavar="FILE", help="Operations to add: JSON, JSON Lines or CSV; repeatable."),
]


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.command(name="report", short_help="Show and draw a recorded run.", epilog=EXAMPLES)(report)


def report(  # noqa: PLR0913 — one parameter per option
    path: Source = None,
    *,
    plot: Picture = None,
    panels: Panels = None,
    marks: Marks = None,
    depth: options.Depth = 1,
    types: options.Types = None,
    unit: options.Unit = MemoryUnit.MiB,
    from_zero: options.FromZero = False,
    title: Annotated[str, typer.Option("--title", metavar="TEXT", help="Instead of the command.")] = "",
    force: options.Force = False,
) -> int:
    """Show what a recorded run cost: peaks, averages, CPU, I/O, processes."""
    from nncftools.cli import opening, screen
    from nncftools.render import text
    from nncftools.render.view import View

    pictures = {
        option: _checked_picture(option, picture, force=force)
        for option, picture in (("--plot", plot), ("--panels", panels))
        if picture is not None
    }
    session = opening.opened(path, options.DEFAULT_LOG_DIR, marks or [])
    available = [name for name in session.samples.metrics if name in MEMORY_METRICS]
    view = View(options.memory_types(types, available), unit, from_zero=from_zero, title=title, depth=depth)
    screen.put(text.report(session, view))
    for option, picture in pictures.items():
        _draw(option, picture, session, view)
    return 0


def _draw(option: str, picture: pathlib.Path, session: Session, view: View) -> None:
    from nncftools.cli import screen
    from nncftools.render import panels, plot
    from nncftools.render.view import printable

    try:
        if option == "--plot":
            plot.draw(session, view, picture)
        else:
            panels.draw(session, view, picture, depth=view.depth)
    except OSError as error:
        raise NncfToolsError(f"option {option}: cannot write {str(picture)!r}: {error.strerror or error}") from error
    screen.tell(f"\nDrawn to {printable(str(picture))}\n")


def _checked_picture(option: str, path: pathlib.Path, *, force: bool) -> pathlib.Path:
    from nncftools.cli import destination

    formats = (".png", ".svg", ".pdf")
    if path.suffix.lower() not in formats:
        raise UsageError(f"option {option}: {str(path)!r} does not end in one of {', '.join(formats)}")
    return destination.replaceable(option, path, force=force)
