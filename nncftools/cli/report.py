"""``nncf-tools report`` and ``replay`` show a recorded run; ``nncf-tools watch`` shows a running recording."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from nncftools.analysis.session import Session
from nncftools.cli import destination, opening, options, screen
from nncftools.cli.options import Request
from nncftools.cli.parameters import READ, RECORD, SHOW, WRITE, File, Files, argument, option
from nncftools.errors import NncfToolsError, UsageError
from nncftools.importers import IMPORTERS
from nncftools.journal import reading
from nncftools.journal.reading import is_recording
from nncftools.metrics import memory_of
from nncftools.render import view as render_view
from nncftools.render.view import Content, View
from nncftools.units import MemoryUnit, printable, seconds_from

if TYPE_CHECKING:
    from rich.console import RenderableType

    from nncftools.live.follower import Follower, Replay


_RECORD_STACKS = "; `nncf-tools profile` and `nncf-tools monitor --stacks` record stacks"
_JSON = "json"
_PEAK_FORMATS = (render_view.TEXT, "markdown", _JSON)


def _parse_time(text: str) -> float:
    """Return a time in seconds; ``end`` means the end of the program. Raises ValueError."""
    return render_view.END if text == "end" else seconds_from(text)


def report(  # noqa: PLR0913 — one parameter per option
    paths: Annotated[
        Files,
        argument(
            "SESSION",
            "A session, a journal, a log, a folder (the newest session in it), latest, or latest~1; also gzipped. "
            "For a job, the sessions of all ranks. Default: latest.",
            autocompletion=options.complete_session,
        ),
    ] = None,
    *,
    from_: Annotated[
        str | None,
        option(
            "--from TOOL",
            READ,
            f"Tool that wrote the log, if the log is not recognised: {', '.join(IMPORTERS)}. With --to: start time.",
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
            "--output -o FILE",
            WRITE,
            "Write to this file; the ending decides the format. With --format memory-log, write to this folder.",
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
        bool, option("--peak", SHOW, "Show the code that took the memory at the RSS peak, and the kinds of memory.")
    ] = False,
    operation: Annotated[
        str | None,
        option(
            "--operation NAME",
            SHOW,
            "With --peak: the highest peak in this operation or function; 'NAME (2)' is the second of that name.",
        ),
    ] = None,
    at: Annotated[
        float | None,
        option(
            "--at TIME",
            SHOW,
            "With --peak: the memory at this time after the start (7.5, 2min), or the memory never given back (end).",
            parser=_parse_time,
        ),
    ] = None,
    to: Annotated[
        float | None,
        option(
            "--to TIME",
            SHOW,
            "With --peak and --from TIME: the growth from that time to this time.",
            parser=seconds_from,
        ),
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
    """Show the cost of a recorded run: peaks, averages, CPU, I/O, processes.

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

    Sessions of the ranks of a job are merged by time; the report shows each rank,
    the sum, and the rank with the highest peak. Logs of mprof, psrecord, con-duct
    and NNCF's memory monitor can be read, too. Defaults of --unit and --depth can
    be set in pyproject.toml; see `nncf-tools profile --help`.
    """
    if opens:
        format_ = format_ or render_view.PAGE
    format_ = options.choose_format(format_, output, render_view.FORMATS)
    if opens and format_ != render_view.PAGE:
        raise UsageError(f"option --open: opens the HTML page, so not with --format {format_}")
    part = _choose_part(operation, at, from_, to=to, is_asked=peak)
    if peak and format_ not in _PEAK_FORMATS:
        endings = "or an --output that ends in .txt, .md or .json"
        raise UsageError(f"option --peak: only with --format text, markdown or json, {endings}")
    if opens:
        if output is None:
            output = Path(tempfile.mkdtemp(prefix="nncf-tools-"), "report.html")
        destination.check_file("--output", output, force=True)
    inputs = marks or []
    if output or plot or panels:
        inputs = [*inputs, *opening.files_read(paths or [], options.DEFAULT_LOG_DIR)]
    file = None if output is not None and output.is_dir() else output
    outputs = {"--output": file, "--plot": plot, "--panels": panels}
    pictures = options.check_outputs(outputs, inputs, force=force)
    if format_ != render_view.PICTURE:
        output = pictures.pop("--output", output)
    remedy = f"; name the tool that wrote it with --from: {', '.join(IMPORTERS)}"
    with options.naming_remedy(importer=remedy):
        session = opening.open_sessions(
            paths or [],
            options.DEFAULT_LOG_DIR,
            sidecars=marks or [],
            tool=from_ if to is None else None,
        )
    available = memory_of(session.samples.metrics)
    metrics = options.memory_types(types, available, available)
    view = View(
        metrics,
        unit,
        from_zero=from_zero or session.from_zero,
        title=title,
        depth=depth,
        brief=not details,
        asked=metrics if types else (),
    )
    if format_ != render_view.PICTURE:
        if peak:
            content = _render_part(session, view, format_, part)
        else:
            with options.naming_option("--format"), options.naming_remedy(stacks=_RECORD_STACKS):
                content = render_view.format_named(format_)(session, view)
        if output is None:
            screen.to_stdout(_check_for_screen(format_, content))
        else:
            _write(content, output, inputs, force=force)
            screen.to_stderr(f"Written to {printable(str(output))}\n")
    if opens and output is not None:
        screen.open_page(output)
    for name, picture in pictures.items():
        from nncftools.render import panels as render_panels
        from nncftools.render import plot as render_plot

        draw = render_panels.draw if name == "--panels" else render_plot.draw
        with destination.writing(name, picture):
            draw(session, view, picture)
        screen.to_stderr(f"\nDrawn to {printable(str(picture))}\n")
    return 0


class _Part(NamedTuple):
    """The moment or the time span whose memory ``--peak`` shows; by default the moment of the RSS peak."""

    option: str = "--peak"
    """The option that selects the moment or the time span."""
    operation: str | None = None
    at_s: float | None = None
    between_s: tuple[float, float] | None = None


def _choose_part(
    operation: str | None, at: float | None, from_: str | None, *, to: float | None, is_asked: bool
) -> _Part:
    """Return the moment or the time span whose memory ``--peak`` shows.

    Raises UsageError if options cannot be combined.
    """
    values = {"--operation": operation, "--at": at, "--to": to}
    given = [name for name, value in values.items() if value is not None]
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
        start = seconds_from(from_)
    except ValueError as error:
        raise UsageError(f"option --from: {error}") from error
    if start > to:
        raise UsageError(f"option --from: {start:g} s is later than --to, {to:g} s")
    return _Part("--to", between_s=(start, to))


def _render_part(session: Session, view: View, format_: str, part: _Part) -> Content:
    from nncftools.render import build_up

    with options.naming_option(part.option), options.naming_remedy(stacks=_RECORD_STACKS):
        report = build_up.build_up_report(session, view.unit, *part[1:])
    if format_ == _JSON:
        from nncftools.render.summary_json import peak_tree

        return peak_tree(session, report.rise, report.title)
    return build_up.as_text(report) if format_ == render_view.TEXT else build_up.as_markdown(report)


def _check_for_screen(name: str, content: Content) -> RenderableType | bytes:
    """Return the content for standard output.

    Raises UsageError if the content is several files, or binary data for a terminal.
    """
    if isinstance(content, Mapping):
        raise UsageError(f"option --format: {name} consists of several files; name a folder with --output")
    if isinstance(content, bytes) and sys.stdout.isatty():
        raise UsageError(f"option --format: {name} cannot be shown on a terminal; name a file with --output")
    return content


def _write(content: Content, output: Path, inputs: Sequence[Path], *, force: bool) -> None:
    """Write a file, or several files into a folder; never replace one of ``inputs``. Raises NncfToolsError."""
    if isinstance(content, Mapping):
        for name in content:
            options.check_outputs({"--output": output / name}, inputs, force=force)
        with destination.open_folder("--output", output), destination.writing("--output", output):
            for name, write_part in content.items():
                write_part(output / name)
        return
    destination.check_output("--output", output, force=force)
    destination.write(output, content)


_SAVING_S = 10.0
_PATIENCE_S = 2.0
"""After a recording has ended, wait this long for the session file, which replaces the journal."""


def watch(
    path: Annotated[
        File,
        argument(
            "SESSION",
            "A session, a journal, or a folder. Default: the newest running recording in memory_logs.",
            autocompletion=options.complete_session,
        ),
    ] = None,
    *,
    pid: Annotated[int | None, option("--pid PID", RECORD, "Watch this running process.", min=1)] = None,
    types: options.Types = None,
    interval: options.Interval = 0.1,
    unit: options.Unit = MemoryUnit.MiB,
) -> int:
    """Follow a recording in another terminal, job or CI runner until it ends, then show its summary.

    \b
    Examples:
      nncf-tools watch
      nncf-tools watch memory_logs/2026-11-21_09-30-00_python
      nncf-tools watch run.journal.jsonl
      nncf-tools watch --pid 4711

    \b
    Keys: q quit, space pause, m metric, l list of processes, ? help.
    Neither watching nor quitting affects the recording.
    """
    if pid is not None and path is not None:
        raise UsageError("option --pid: either a session or --pid, not both")
    if pid is not None:
        request = Request(pid=pid, types=types, interval=interval, unit=unit)
        return _run_until_end(lambda: _watch_process(request))
    return _run_until_end(lambda: _watch_recording(path, types, unit))


def _run_until_end(show: Callable[[], object]) -> int:
    """Call ``show`` and return 0. If the user or a signal ended the view, return the matching exit status."""
    from nncftools.live.viewer import Ended

    try:
        show()
    except Ended as ended:
        return ended.status
    return 0


def _watch_recording(path: Path | None, types: list[str] | None, unit: MemoryUnit) -> None:
    if path is not None and not path.is_dir():
        path = destination.find_recording(path, options.DEFAULT_LOG_DIR)
    journal = _find_journal(path)
    if journal is not None and is_recording(journal):
        with _follow(journal) as follower:
            if not _show_recording(follower, types, unit):
                screen.to_stdout("The recording continues.\n")
                return
            if follower.error is not None:
                raise NncfToolsError(f"nothing was recorded: {follower.error}")
        _summarize(_open_result(journal, _PATIENCE_S), types, unit)
        return
    if path is None:
        folder = repr(str(options.DEFAULT_LOG_DIR))
        raise NncfToolsError(f"no recording runs under {folder}; `nncf-tools report` shows the last recording")
    screen.to_stdout("This recording has ended.\n\n")
    if journal is not None:
        _summarize(_open_result(journal, 0.0), types, unit)
    else:
        _summarize(opening.open_session(path, options.DEFAULT_LOG_DIR), types, unit)


def _find_journal(path: Path | None) -> Path | None:
    """Return the journal (the file of a running recording) for a session; None if there is no journal.

    For a folder, return the newest journal of a recording that is still running.
    """
    if path is not None and not path.is_dir():
        if path.name.endswith(destination.JOURNAL_ENDING):
            return path
        journal = path.with_name(destination.session_stem(path) + destination.JOURNAL_ENDING)
        return journal if journal.exists() else None
    for recording in destination.list_recordings(path or options.DEFAULT_LOG_DIR):
        if recording.name.endswith(destination.JOURNAL_ENDING) and is_recording(recording):
            return recording
    return None


def _follow(journal: Path) -> Follower:
    from nncftools.live.follower import Follower

    try:
        return Follower(journal)
    except OSError as error:
        raise NncfToolsError(f"{journal}: cannot be read: {error.strerror or error}") from error


def _show_recording(follower: Follower, types: list[str] | None, unit: MemoryUnit) -> bool:
    """Show a running recording; return whether the recording has ended."""
    follower.read()
    is_here = follower.run.host.name == platform.node()
    metrics = options.memory_types(types, follower.run.columns, ()) if types else []
    return _show(follower, View(metrics, unit), "recording", is_here=is_here, stays=False)


def _show(source: Follower | Replay, view: View, state: str, *, is_here: bool, stays: bool) -> bool:
    """Show a run on a terminal, or print the last state if there is no terminal; return whether the run has ended."""
    from nncftools.cli.display import make_settings
    from nncftools.live import figures, viewer

    settings = make_settings(view, sys.stdout.encoding, state)
    machine = figures.Machine(is_here=is_here)
    return viewer.present(source, settings, machine, screen.to_stdout, stays=stays)


def _open_result(journal: Path, patience_s: float) -> Session:
    """Return the session that replaces a journal; if no session appears for some time, read the journal."""
    begun_s = time.monotonic()
    stem = journal.name.removesuffix(destination.JOURNAL_ENDING)
    while time.monotonic() < begun_s + (patience_s if journal.exists() else _SAVING_S):
        names = (f"{stem}.json", f"{stem}.json.gz", stem)
        saved = list(filter(Path.is_file, map(journal.with_name, names)))
        if saved and not journal.exists():
            return opening.open_session(saved[0], options.DEFAULT_LOG_DIR)
        time.sleep(0.05)
    return opening.open_session(journal, options.DEFAULT_LOG_DIR)


def _summarize(session: Session, types: list[str] | None, unit: MemoryUnit) -> None:
    from nncftools.render import text

    available = memory_of(session.samples.metrics)
    view = View(options.memory_types(types, available, available), unit, brief=True)
    screen.to_stdout(text.report(session, view))


def _watch_process(request: Request) -> None:
    from nncftools.cli import planning

    _, columns = planning.choose_columns(request)
    from nncftools.sampler import client
    from nncftools.sampler.client import Starter

    planning.resolve_target(request)
    plan = planning.make_plan(columns, request)
    with tempfile.TemporaryDirectory(prefix="nncf-tools-") as folder, Starter() as starter:
        journal = Path(folder, "session.journal.jsonl")
        descriptor = reading.create(journal, replace=False)
        with client.Sampler(starter, plan, [], ends_with_starter=True) as sampler:
            sampler.start(client.make_header("", [], None, plan), descriptor)
            os.close(descriptor)
            try:
                with _follow(journal) as follower:
                    _show_recording(follower, request.types, request.unit)
            finally:
                sampler.stop()
                sampler.wait()
        _summarize(opening.open_session(journal, options.DEFAULT_LOG_DIR), request.types, request.unit)


_SLOWEST = 0.01
_FASTEST = 1e6


def replay(
    path: Annotated[
        File,
        argument(
            "SESSION",
            "A session, a journal, a folder (the newest session in it), latest, or latest~1. Default: latest.",
            autocompletion=options.complete_session,
        ),
    ] = None,
    *,
    speed: Annotated[float, option("--speed N", SHOW, "How many seconds of the run are shown per second.")] = 10,
    types: options.RecordedTypes = None,
    unit: options.Unit = MemoryUnit.MiB,
) -> int:
    """Show a recorded run in the live view, at a multiple of its speed.

    \b
    Examples:
      nncf-tools replay
      nncf-tools replay run.json --speed 60

    Keys: q quit, space pause, ← → move, g peak, m metric, l list of processes, ? help.
    """
    from nncftools.live.follower import Replay

    if not _SLOWEST <= speed <= _FASTEST:
        raise UsageError(f"option --speed: a number from {_SLOWEST:g} to {_FASTEST:,.0f} expected, found {speed:g}")
    session = opening.open_session(path, options.DEFAULT_LOG_DIR)
    available = memory_of(session.samples.metrics)
    metrics = options.memory_types(types, available, ()) if types else []
    replay = Replay(session, speed)
    view = View(metrics, unit)
    return _run_until_end(lambda: _show(replay, view, f"replay ×{speed:g}", is_here=False, stays=True))
