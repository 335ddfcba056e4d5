"""``nncf-tools report``: shows and draws a recorded session."""

from __future__ import annotations

import pathlib
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

from nncftools.analysis.session import Session
from nncftools.cli import destination, opening, options, screen
from nncftools.cli.parameters import READ, SHOW, WRITE, File, Files, argument, option
from nncftools.errors import UsageError
from nncftools.importers import IMPORTERS
from nncftools.metrics import memory_of
from nncftools.render import view as render_view
from nncftools.render.view import Content, View
from nncftools.units import MemoryUnit, printable, seconds_from

if TYPE_CHECKING:
    from rich.console import RenderableType


_RECORD_STACKS = "; record it with `nncf-tools profile` or `nncf-tools monitor --stacks`, which take stacks"


_JSON = "json"
_PEAK_FORMATS = (render_view.TEXT, "markdown", _JSON)


def _moment_from(text: str) -> float:
    """Parse a time, or the word for the end of the program. Raises ValueError."""
    return render_view.END if text == "end" else seconds_from(text)


def report(  # noqa: PLR0913 — one parameter per option
    paths: Annotated[
        Files,
        argument(
            "SESSION",
            "A session, a journal, a log, a folder (its newest session), latest, or latest~1; also gzipped. For a "
            "job, the sessions of its ranks. Default: latest.",
            autocompletion=options.complete_session,
        ),
    ] = None,
    *,
    from_: Annotated[
        str | None,
        option(
            "--from TOOL",
            READ,
            f"The tool that wrote the log ({', '.join(IMPORTERS)}), if it is not recognised. With --to: a time.",
            autocompletion=options.complete_from(IMPORTERS),
        ),
    ] = None,
    format_: Annotated[
        str | None,
        option(
            "--format -f FORMAT",
            SHOW,
            f"Output format: {', '.join(render_view.FORMATS)}. {options.FORMAT}",
            autocompletion=options.complete_from(render_view.FORMATS),
        ),
    ] = None,
    output: Annotated[
        File,
        option(
            "--output -o FILE", WRITE, "Write to this file, in the format of its ending. memory-log: to this folder."
        ),
    ] = None,
    plot: Annotated[File, option("--plot -p FILE", WRITE, "Also draw memory over time: .png, .svg or .pdf.")] = None,
    panels: Annotated[
        File, option("--panels FILE", WRITE, "Also draw memory, CPU, I/O and operations: .png, .svg or .pdf.")
    ] = None,
    marks: Annotated[
        Files, option("--marks FILE", READ, "Operations to add: JSON, JSON Lines or CSV; repeatable.")
    ] = None,
    peak: Annotated[
        bool, option("--peak", SHOW, "Show which code took the memory of the RSS peak, and what that memory is.")
    ] = False,
    operation: Annotated[
        str | None,
        option(
            "--operation NAME",
            SHOW,
            "With --peak: the highest peak of this operation or function; 'NAME (2)' is the second.",
        ),
    ] = None,
    at: Annotated[
        float | None,
        option(
            "--at TIME",
            SHOW,
            "With --peak: this time since the start instead: 7.5, 2min; or end: what was never given back.",
            parser=_moment_from,
        ),
    ] = None,
    to: Annotated[
        float | None,
        option("--to TIME", SHOW, "With --peak and --from TIME: what grew between these times.", parser=seconds_from),
    ] = None,
    depth: options.Depth = 1,
    details: options.Details = False,
    types: options.RecordedTypes = None,
    unit: options.Unit = MemoryUnit.MiB,
    from_zero: options.FromZero = False,
    title: Annotated[str, option("--title TEXT", SHOW, "Title to show instead of the command.")] = "",
    opens: options.Open = False,
    force: options.Force = False,
) -> int:
    """Show what a recorded run cost: peaks, averages, CPU, I/O, processes.

    \b
    Examples:
      nncf-tools report
      nncf-tools report --open
      nncf-tools report latest~1
      nncf-tools report run.json --unit GB
      nncf-tools report run.json --marks operations.csv --panels run.pdf
      nncf-tools report run.json --output run.html
      nncf-tools report run.json --peak --output peak.md
      nncf-tools report run.json --format json | jq .peaks.rss.low
      nncf-tools report run.json --peak
      nncf-tools report run.json --peak --operation Export
      nncf-tools report run.json --peak --at 7.5
      nncf-tools report run.json --peak --at end
      nncf-tools report run.json --peak --from 4.2 --to 6
      nncf-tools report run.json --plot run.svg --type rss --from-zero
      nncf-tools report latest --title 'int4, group 64'
      nncf-tools report run-rank*.json
      nncf-tools report mprofile_20261121.dat --format session --output run.json

    Recordings of the ranks of one job are merged by time: each rank, their sum,
    and the rank with the highest peak. Logs of mprof, psrecord, con-duct and
    NNCF's memory monitor are read, too.
    """
    by_default = render_view.PAGE if opens else None
    format_ = options.choose_format(format_ or by_default, output, render_view.FORMATS)
    if opens and format_ != render_view.PAGE:
        raise UsageError(f"option --open: it opens the page; not with --format {format_}")
    of_peak = _of_peak(operation, at, from_ if peak or to is not None else None, to, is_asked=peak)
    if peak and format_ not in _PEAK_FORMATS:
        endings = "or an --output that ends in .txt, .md or .json"
        raise UsageError(f"option --peak: only with --format text, markdown or json, {endings}")
    if opens:
        output = output or pathlib.Path(tempfile.mkdtemp(prefix="nncf-tools-"), "report.html")
        destination.check_file("--output", output, force=True)
    file = None if output is not None and output.is_dir() else output
    named = {"--output": file, "--plot": plot, "--panels": panels}
    read = marks or []
    if output or plot or panels:
        read = [*read, *opening.files_read(paths or [], options.DEFAULT_LOG_DIR)]
    pictures = options.check_outputs(named, read, force=force)
    if format_ != render_view.PICTURE:
        output = pictures.pop("--output", output)
    remedy = f"; name the tool that wrote it with --from: {', '.join(IMPORTERS)}"
    with options.naming_remedy(importer=remedy):
        tool = None if to is not None else from_
        session = opening.open_sessions(paths or [], options.DEFAULT_LOG_DIR, marks or [], tool)
    available = memory_of(session.samples.metrics)
    from_zero = from_zero or session.from_zero
    shown = options.memory_types(types, available, available)
    view = View(
        shown, unit, from_zero=from_zero, title=title, depth=depth, brief=not details, asked=shown if types else ()
    )
    if format_ != render_view.PICTURE:
        if peak:
            content = _build_up(session, view, format_, of_peak)
        else:
            with options.naming_option("--format"), options.naming_remedy(stacks=_RECORD_STACKS):
                content = render_view.format_named(format_)(session, view)
        if output is None:
            screen.to_stdout(_for_screen(format_, content))
        else:
            _write(content, output, read, force=force)
            screen.to_stderr(f"Written to {printable(str(output))}\n")
    if opens and output is not None:
        screen.open_page(output)
    for name, picture in pictures.items():
        from nncftools.render import panels as render_panels
        from nncftools.render import plot as render_plot

        with destination.writing(name, picture):
            (render_panels if name == "--panels" else render_plot).draw(session, view, picture)
        screen.to_stderr(f"\nDrawn to {printable(str(picture))}\n")
    return 0


class _Part(NamedTuple):
    """What of the memory to show; the whole peak without any."""

    option: str = "--peak"
    """What asks for it."""
    operation: str | None = None
    at_s: float | None = None
    between_s: tuple[float, float] | None = None


def _of_peak(operation: str | None, at: float | None, from_: str | None, to: float | None, *, is_asked: bool) -> _Part:
    """Return what of the memory to show. Raises UsageError for options that do not go together."""
    given = [name for name, value in (("--operation", operation), ("--at", at), ("--to", to)) if value is not None]
    if given and not is_asked:
        raise UsageError(f"option {given[0]}: only with --peak")
    if len(given) > 1:
        raise UsageError(f"option {given[1]}: either {given[0]} or {given[1]}, not both")
    if to is None:
        if is_asked and from_ is not None and from_ not in IMPORTERS:
            raise UsageError("option --from: a time needs --to TIME")
        return _Part(given[0] if given else "--peak", operation, at)
    if from_ is None:
        raise UsageError("option --to: only with --from TIME")
    try:
        return _Part("--to", between_s=(seconds_from(from_), to))
    except ValueError as error:
        raise UsageError(f"option --from: {error}") from error


def _build_up(session: Session, view: View, format_: str, part: _Part) -> Content:
    """Return what the memory consisted of at the peak, at that of an operation, at a moment, or what grew."""
    from nncftools.render import build_up

    with options.naming_option(part.option), options.naming_remedy(stacks=_RECORD_STACKS):
        whole = build_up.build_up_report(session, view.unit, *part[1:])
    if format_ == _JSON:
        from nncftools.render.summary_json import peak_tree

        return peak_tree(session, whole.rise, whole.title)
    return build_up.as_text(whole) if format_ == render_view.TEXT else build_up.as_markdown(whole)


def _for_screen(name: str, content: Content) -> RenderableType | bytes:
    """Return the content for standard output. Raises UsageError for several files, or binary data on a terminal."""
    if isinstance(content, Mapping):
        raise UsageError(f"option --format: {name} consists of several files; name a folder with --output")
    if isinstance(content, bytes) and sys.stdout.isatty():
        raise UsageError(f"option --format: {name} cannot be shown on a terminal; name a file with --output")
    return content


def _write(content: Content, output: pathlib.Path, read: Sequence[pathlib.Path], *, force: bool) -> None:
    """Write one file, or several into a folder; none of them may be a file that was ``read``. Raises NncfToolsError."""
    if isinstance(content, Mapping):
        for name in content:
            options.check_outputs({"--output": output / name}, read, force=force)
        with destination.open_folder("--output", output), destination.writing("--output", output):
            for name, write_part in content.items():
                write_part(output / name)
        return
    destination.check_output("--output", output, force=force)
    destination.write(output, content)
