"""``nncf-tools report``: shows and draws a recorded session."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from nncftools.cli import destination, options, parameters
from nncftools.errors import UsageError
from nncftools.importers import IMPORTERS
from nncftools.metrics import memory_of
from nncftools.render import view as render_view
from nncftools.render.view import Content, View
from nncftools.session.session import Session
from nncftools.units import MemoryUnit, seconds_from

if TYPE_CHECKING:
    from rich.console import RenderableType


EXAMPLES = """\b
Examples:
  nncf-tools report
  nncf-tools report --open
  nncf-tools report latest~1
  nncf-tools report run.json --unit GB
  nncf-tools report run.json --marks operations.csv --panels run.pdf
  nncf-tools report run.json --format html --output run.html
  nncf-tools report run.json --format json | jq .peaks.rss.low
  nncf-tools report run.json --peak
  nncf-tools report run.json --peak --operation Export
  nncf-tools report run.json --peak --at 7.5
  nncf-tools report run.json --plot run.svg --type rss --from-zero
  nncf-tools report latest --title 'int4, group 64'
  nncf-tools report run-rank*.json
  nncf-tools report mprofile_20261121.dat --format session --output run.json

\b
Recordings of the ranks of one job are merged by time: each rank, their sum,
and the rank with the highest peak. Logs of mprof, psrecord, con-duct, NNCF's
memory monitor and prmon are read, too."""

_RECORD_STACKS = "; record it with `nncf-tools profile` or `nncf-tools monitor --stacks`, which take stacks"

Sources = Annotated[
    list[pathlib.Path] | None,
    typer.Argument(
        metavar="SESSION [SESSION]",
        autocompletion=options.session_candidates,
        readable=False,
        show_default=False,
        help="A session, a journal, a log, a folder (its newest session), latest, or latest~1; also gzipped. For a "
        "job, the sessions of its ranks. Default: latest.",
    ),
]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="TOOL",
        autocompletion=options.importer_candidates,
        help=f"The tool that wrote the log ({', '.join(IMPORTERS)}), if it is not recognised.",
        rich_help_panel=parameters.READ,
    ),
]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        "-f",
        metavar="FORMAT",
        autocompletion=options.format_candidates,
        help=f"Output format: {', '.join(render_view.FORMATS)}.",
        rich_help_panel=parameters.SHOW,
    ),
]
Output = Annotated[
    pathlib.Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write the report to this file; with memory-log: a .txt and a .png per metric to this folder.",
        rich_help_panel=parameters.WRITE,
    ),
]
Picture = Annotated[
    pathlib.Path | None,
    typer.Option(
        "--plot",
        "-p",
        metavar="FILE",
        help="Also draw memory over time: .png, .svg or .pdf.",
        rich_help_panel=parameters.WRITE,
    ),
]
Panels = Annotated[
    pathlib.Path | None,
    typer.Option(
        "--panels",
        metavar="FILE",
        help="Also draw memory, CPU, I/O and operations: .png, .svg or .pdf.",
        rich_help_panel=parameters.WRITE,
    ),
]
Marks = Annotated[
    list[pathlib.Path] | None,
    typer.Option(
        "--marks",
        metavar="FILE",
        help="Operations to add: JSON, JSON Lines or CSV; repeatable.",
        rich_help_panel=parameters.READ,
    ),
]
WholePeak = Annotated[
    bool,
    typer.Option(
        "--peak",
        help="Show what the RSS peak consists of: the code that took the memory, and what it is.",
        rich_help_panel=parameters.SHOW,
    ),
]
OfOperation = Annotated[
    str | None,
    typer.Option(
        "--operation",
        metavar="NAME",
        help="With --peak: that of this operation or function; of the second: 'NAME (2)'.",
        rich_help_panel=parameters.SHOW,
    ),
]
At = Annotated[
    float | None,
    typer.Option(
        "--at",
        metavar="TIME",
        parser=seconds_from,
        help="With --peak: this moment instead, since the start: 7.5, 2min.",
        rich_help_panel=parameters.SHOW,
    ),
]
_PEAK_FORMATS = (render_view.TEXT, "markdown")


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.command(name="report", epilog=EXAMPLES)(report)


def report(  # noqa: PLR0913 — one parameter per option
    paths: Sources = None,
    *,
    from_: From = None,
    format_: Format = render_view.TEXT,
    output: Output = None,
    plot: Picture = None,
    panels: Panels = None,
    marks: Marks = None,
    peak: WholePeak = False,
    operation: OfOperation = None,
    at: At = None,
    depth: options.Depth = 1,
    types: options.RecordedTypes = None,
    unit: options.Unit = MemoryUnit.MiB,
    from_zero: options.FromZero = False,
    title: Annotated[
        str,
        typer.Option(
            "--title", metavar="TEXT", help="Title to show instead of the command.", rich_help_panel=parameters.SHOW
        ),
    ] = "",
    max_size: options.MaxSize = None,
    opens: options.Open = False,
    force: options.Force = False,
) -> int:
    """Show what a recorded run cost: peaks, averages, CPU, I/O, processes."""
    format_ = _named_format(format_)
    if opens:
        format_, output = _page(format_, output)
    from nncftools.cli import opening, screen
    from nncftools.render.view import View
    from nncftools.units import printable

    with options.named("--format"):
        render = render_view.format_named(format_)
    _check_peak(format_, operation, at, is_asked=peak)
    if output is not None and not output.is_dir():
        output = destination.replaceable("--output", output, force=force)
    pictures = {
        option: destination.picture(option, picture, force=force)
        for option, picture in (("--plot", plot), ("--panels", panels))
        if picture is not None
    }
    named = f"; name the tool that wrote it with --from: {', '.join(IMPORTERS)}"
    with options.reading(max_size), options.mended(importer=named):
        session = opening.open_sessions(paths or [], options.DEFAULT_LOG_DIR, marks or [], from_)
    available = memory_of(session.samples.metrics)
    from_zero = from_zero or session.from_zero
    view = View(options.memory_types(types, available, available), unit, from_zero=from_zero, title=title, depth=depth)
    if peak:
        content = _build_up(session, view, format_, operation, at)
    else:
        with options.named("--format"), options.mended(stacks=_RECORD_STACKS):
            content = render(session, view)
    if output is None:
        screen.to_stdout(_for_screen(format_, content))
    else:
        _write(content, output, force=force)
        screen.to_stderr(f"Written to {printable(str(output))}\n")
    if opens and output is not None:
        from nncftools.cli import closing

        closing.show(output)
    for option, picture in pictures.items():
        _draw(option, picture, session, view)
    return 0


def _named_format(name: str) -> str:
    """Return the name of a format in lower case. Raises UsageError for one of a picture, which has its own option."""
    name = name.lower()
    if f".{name}" in destination.PICTURES:
        raise UsageError(
            f"option --format: {name} is a picture; draw it with --plot FILE.{name} or --panels FILE.{name}"
        )
    return name


def _page(format_: str, output: pathlib.Path | None) -> tuple[str, pathlib.Path]:
    """Return the format and the place of a page to open. Raises UsageError for another format."""
    import tempfile

    if format_ not in {render_view.TEXT, render_view.PAGE}:
        raise UsageError(f"option --open: it opens the page; not with --format {format_}")
    return render_view.PAGE, output or pathlib.Path(tempfile.mkdtemp(prefix="nncf-tools-"), "report.html")


def _check_peak(format_: str, operation: str | None, at: float | None, *, is_asked: bool) -> None:
    """Raise UsageError for options that do not go together."""
    for option, value in (("--operation", operation), ("--at", at)):
        if value is not None and not is_asked:
            raise UsageError(f"option {option}: only with --peak")
    if operation is not None and at is not None:
        raise UsageError("option --at: either --operation or --at, not both")
    if is_asked and format_ not in _PEAK_FORMATS:
        raise UsageError(f"option --peak: only with --format {' or '.join(_PEAK_FORMATS)}")


def _build_up(session: Session, view: View, format_: str, operation: str | None, at: float | None) -> Content:
    """Return what the memory consisted of at the peak, at that of an operation, or at a moment."""
    from nncftools.render import build_up

    option = "--operation" if operation is not None else "--at" if at is not None else "--peak"
    with options.named(option), options.mended(stacks=_RECORD_STACKS):
        whole = build_up.build_up_report(session, view.unit, operation, at)
    return build_up.as_text(whole) if format_ == render_view.TEXT else build_up.as_markdown(whole)


def _for_screen(name: str, content: Content) -> RenderableType | bytes:
    """Return the content for standard output. Raises UsageError for several files, or binary data on a terminal."""
    if isinstance(content, Mapping):
        raise UsageError(f"option --format: {name} consists of several files; name a folder with --output")
    if isinstance(content, bytes) and sys.stdout.isatty():
        raise UsageError(f"option --format: {name} cannot be shown on a terminal; name a file with --output")
    return content


def _write(content: Content, output: pathlib.Path, *, force: bool) -> None:
    """Write one file, gzipped if its name ends in ``.gz``, or several into a folder. Raises NncfToolsError."""
    import gzip

    from nncftools.cli import destination, screen
    from nncftools.files import replacing

    try:
        if isinstance(content, Mapping):
            paths = {name: destination.replaceable("--output", output / name, force=force) for name in content}
            output.mkdir(parents=True, exist_ok=True)
            for name, write in content.items():
                write(paths[name])
            return
        data = content if isinstance(content, bytes) else screen.plain(content).encode(errors="backslashreplace")
        with replacing(destination.replaceable("--output", output, force=force)) as beside:
            beside.write_bytes(gzip.compress(data, mtime=0) if output.suffix == ".gz" else data)
    except OSError as error:
        raise destination.cannot_write("--output", output, error) from error


def _draw(option: str, picture: pathlib.Path, session: Session, view: View) -> None:
    from nncftools.cli import destination, screen
    from nncftools.units import printable

    try:
        if option == "--plot":
            from nncftools.render import plot

            plot.draw(session, view, picture)
        else:
            from nncftools.render import panels

            panels.draw(session, view, picture)
    except OSError as error:
        raise destination.cannot_write(option, picture, error) from error
    screen.to_stderr(f"\nDrawn to {printable(str(picture))}\n")
