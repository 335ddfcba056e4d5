"""Lists the code and the kinds of memory of a peak, of a moment or of a growth, and the memory whose code is unknown.

The output is text for a terminal (80 columns, no colour needed), or Markdown for a pull request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from nncftools.analysis import build_up
from nncftools.analysis.build_up import NOT_SEEN, BuildUp
from nncftools.analysis.code_places import SEPARATOR, brief_label, calling_place
from nncftools.analysis.comparison import unique_names
from nncftools.analysis.frames import WITHOUT_STACK, Node, tree_of
from nncftools.analysis.gates import selected
from nncftools.analysis.rss_levels import Kinds, kinds_near
from nncftools.analysis.session import Session
from nncftools.errors import NncfToolsError, UsageError
from nncftools.markdown import code, text
from nncftools.render.peak_lines import doubt, join_lines
from nncftools.render.sentences import span_text, when_text
from nncftools.render.stacks import PEAK, explain_build_up, explain_missing, name_kind, write_moment
from nncftools.render.table import (
    FIRST_COLUMN,
    Cell,
    Column,
    Fitting,
    Row,
    Table,
    column_widths,
    join_blocks,
    pairs,
    render_markdown,
    render_table,
)
from nncftools.render.view import END, clip, command_text
from nncftools.session.model import Frame, MappingGroup
from nncftools.units import UNKNOWN, MemoryUnit, printable, seconds_text, shortened

_SHARE = 0.01
"""Code, processes and kinds of memory below this share of the memory have no row of their own."""
_MOST = 60
_DEEPEST = 12
_TITLE = 200
_PATH = 60
_LISTED = 20
_LEAST_NAME = 30
"""If the other columns leave fewer characters than these for the code, the code column becomes the first column."""


_ALMOST_ALL = 0.99
"""A caller and its callee share a row if the callee holds at least this share of the caller's memory."""
_LESS_CERTAIN = 0.2
"""``Node.certain`` is the memory that certainly belongs to a function and its calls, and ``Node.size`` is all memory. A
callee gets its own row if ``certain`` of the callee is below ``certain`` of the caller by more than this share of the
caller's ``size``."""


class TreeRow(NamedTuple):
    """A row of the code table, with sizes in bytes.

    A chain of functions that call each other shares a row, if all of them hold almost the same number of bytes.
    """

    depth: int
    size: int
    certain: int | None
    """The part of ``size`` that certainly belongs to these functions; None for memory without a stack."""
    label: str
    or_later: str = ""
    """The name of a function that ran later, and may hold most of this memory instead; empty if there is none."""


def branches(root: Node, share: float, most: int) -> tuple[list[TreeRow], int]:
    """Return the rows of the code table, callers above callees, and the number of rows that are left out.

    A row holds at least ``share`` of the whole memory. If there are more than ``most`` rows, the smallest are left out.
    """
    rows = list(_make_rows(root, 0, root.size * share, None))
    largest = sorted((row.size for row in rows), reverse=True)[:most]
    shown = [row for row in rows if row.size >= largest[-1]][:most]
    return shown, len(rows) - len(shown)


def _make_rows(node: Node, depth: int, least: float, caller: Frame | None) -> Iterator[TreeRow]:
    small = [child.size for child in node.children.values() if child.size < least]
    for child in node.sorted_children[: len(node.children) - len(small)]:
        chain = _follow_chain(child)
        last = chain[-1]
        frames = [callee.frame for callee in chain if callee.frame is not None]
        certain = None if child.kind in WITHOUT_STACK else last.certain
        yield TreeRow(
            depth,
            child.size,
            certain,
            label=child.text
            or _join_frames(
                frames,
                caller,
            ),
            or_later=last.or_later,
        )
        yield from _make_rows(last, depth + 1, least, last.frame)
    if small and sum(small) >= least:
        yield TreeRow(depth, sum(small), None, f"… {len(small):,} smaller")


def _follow_chain(node: Node) -> list[Node]:
    """Return the node and its chain of callees, up to the last callee that shares a row with the node."""
    chain = [node]
    least = node.size * _ALMOST_ALL
    least_certain = node.certain - node.size * _LESS_CERTAIN
    while chain[-1].children:
        largest = chain[-1].sorted_children[0]
        if largest.size < least or largest.certain < least_certain:
            break
        chain.append(largest)
    return chain


def _join_frames(frames: Sequence[Frame], caller: Frame | None) -> str:
    """Return the names of three frames: the first, the frame that called the last frame's library, and the last."""
    texts: list[str] = []
    previous = -1
    for index in sorted({0, calling_place(frames) or 0, len(frames) - 1}):
        if index > previous + 1:
            texts.append("…")
        texts.append(brief_label(frames[index], caller))
        caller = frames[index]
        previous = index
    return SEPARATOR.join(texts)


class BuildUpReport(NamedTuple):
    """All texts and tables of a build-up (the code that made memory rise), ready for output."""

    title: str
    """The subject and the size: ``Peak at 0.98 s during Export: RSS 404 MiB``."""
    command: str
    lines: Sequence[tuple[str, str]]
    """The summary lines below the title: pairs of heading and text."""
    tables: Mapping[str, Table]
    """Tables by title. Outputs leave out a table without rows."""
    notes: Sequence[str]
    rise: BuildUp


def build_up_report(
    session: Session,
    unit: MemoryUnit,
    operation: str | None = None,
    at_s: float | None = None,
    between_s: tuple[float, float] | None = None,
) -> BuildUpReport:
    """Return the code that made memory rise up to the peak of the run, or up to another point.

    The point is the peak of ``operation``, the moment ``at_s`` (``END`` for the end of the run), or the end of
    ``between_s``. With ``between_s``, only the growth between the two moments is listed. Raises UsageError if the
    operation is unknown or a moment is outside the recording. Raises NncfToolsError if the session has no stacks.
    """
    if session.snapshots is None:
        raise NncfToolsError("this session was recorded without stacks", remedy="stacks")
    whole = PEAK if at_s is None else "this memory"
    if operation is not None:
        title, rise = _find_operation(session, operation)
    elif between_s is not None:
        for moment_s in between_s:
            _check_moment(moment_s, session)
        from_s, to_s = between_s
        if from_s >= to_s:
            raise UsageError(f"{from_s:g} s is not before {to_s:g} s")
        title = f"Growth from {seconds_text(from_s)} to {seconds_text(to_s)}"
        whole = "the growth"
        rise = build_up.at(session, to_s, since_s=from_s)
        if rise is not None and not rise.size:
            raise NncfToolsError(f"{title}: no process grew")
    elif at_s == END:
        title = "Still held at the end"
        rise = build_up.at_end(session)
        if rise is not None:
            title += f", at {seconds_text(rise.at_s)}"
    elif at_s is not None:
        _check_moment(at_s, session)
        title = f"At {seconds_text(at_s)}"
        rise = build_up.at(session, at_s)
    else:
        title = f"Peak {when_text(session)}".rstrip()
        rise = build_up.of_peak(session)
    if rise is None:
        raise NncfToolsError(f"{title}: no stacks: {explain_missing(session)}")
    kinds = None
    notes = list(_explain_code(session, rise))
    if between_s is None:  # mappings show a moment, not growth
        kinds = kinds_near(session, rise.at_s, rise.size)
        notes = [*_explain_kinds(kinds, unit), *notes]
    return BuildUpReport(
        title=f"{title}: RSS {unit.label(rise.size)}",
        command=shortened(command_text(session), _TITLE),
        lines=explain_build_up(session, rise, whole),
        tables={
            "Code": _list_code(rise, unit),
            "Processes": _list_processes(rise, session, unit),
            "Memory": _list_kinds(kinds, unit),
        },
        notes=notes,
        rise=rise,
    )


def _list_code(rise: BuildUp, unit: MemoryUnit) -> Table:
    """Return the table of the code that took the memory, callers above callees."""
    shown, more = branches(tree_of(rise), _SHARE, _MOST)
    rows = []
    for branch in shown:
        certain = UNKNOWN if branch.certain is None else _write_percent(branch.certain, branch.size)
        texts = (certain, doubt(branch.label, branch.or_later))
        rows.append(
            _make_row(
                unit,
                branch.size,
                rise.size,
                texts,
                depth=min(branch.depth, _DEEPEST),
            )
        )
    return _make_table(unit, ("certain",), "code", rows, more=f"{more:,} smaller rows" if more else "")


def _list_processes(rise: BuildUp, session: Session, unit: MemoryUnit) -> Table:
    """Return the table of the memory of each process; the table has no rows if there is only a single process."""
    sums: Counter[int | None] = Counter()
    for part in rise.parts:
        sums[part.process] += part.size
    by_id = {process.id: process for process in session.processes}
    rows = []
    for number, size in sums.most_common():
        process = None if number is None else by_id.get(number)
        name = "" if process is None else clip(process.name, _PATH)
        pid = UNKNOWN if process is None or process.pid is None else f"{process.pid}"
        rows.append(_make_row(unit, size, rise.size, (pid, name or "?")))
    return _make_table(unit, ("pid",), "process", rows if len(rows) > 1 else [])


def _list_kinds(kinds: Kinds | None, unit: MemoryUnit) -> Table:
    """Return the table of the kinds of memory (anonymous, files, libraries …), from the mappings of the processes."""
    rows: list[Row] = []
    if kinds is not None and not kinds.is_other_memory:
        least = kinds.total * _SHARE
        groups = [group for group in kinds.groups if group.rss >= least / 10]
        rows = [
            _make_row(
                unit,
                group.rss,
                kinds.total,
                _describe_group(group, unit),
            )
            for group in groups
        ]
        if kinds.not_read >= least:
            texts = [*[UNKNOWN] * 4, "other processes: their mappings were not read"]
            rows.append(_make_row(unit, kinds.not_read, kinds.total, texts))
    return _make_table(unit, ("private", "shared", "clean", "copied"), "memory", rows)


def _describe_group(group: MappingGroup, unit: MemoryUnit) -> list[str]:
    is_file = group.kind in {"file", "other_files", "libraries"}
    return [
        unit.text(group.private_clean + group.private_dirty),
        unit.text(group.shared_clean + group.shared_dirty),
        unit.text(group.clean),
        unit.text(group.anonymous) if is_file else "",
        clip(group.file, _PATH) if group.kind == "file" else name_kind(group),
    ]


def _make_row(unit: MemoryUnit, size: int, whole: int, texts: Sequence[str], *, depth: int = 0) -> Row:
    cells = map(Cell, (unit.text(size), _write_percent(size, whole), *texts))
    return Row(cells=list(cells), depth=depth)


def _make_table(unit: MemoryUnit, figures: Sequence[str], name: str, rows: Sequence[Row], *, more: str = "") -> Table:
    columns = [
        *map(Column, (f"{unit}", "share", *figures)),
        Column(name, is_text=True),
    ]
    return Table(columns=columns, rows=rows, more=more)


def _explain_kinds(kinds: Kinds | None, unit: MemoryUnit) -> Iterator[str]:
    if kinds is None:
        yield "the kinds of memory were not read"
    elif not kinds.is_other_memory:
        when = "" if kinds.is_of_moment else f"the mappings are those {write_moment(kinds, unit)}; "
        yield f"{when}clean: pages that the kernel can drop and read again; copied: changed pages of a mapped file"


def _explain_code(session: Session, rise: BuildUp) -> Iterator[str]:
    yield "certain = the call lasted during the whole rise; likely = the code was in the stack before or after the rise"
    yield "freed memory is known by address; on the heap, memory allocated last is assumed to be freed first"
    if rise.sum_of(NOT_SEEN):
        unless = "no stack was read within a second of the rise, or the thread is unknown"
        yield f"not seen: {explain_missing(session, unless)}"


def _check_moment(at_s: float, session: Session) -> None:
    if not 0 <= at_s <= session.duration_s:
        raise UsageError(f"{at_s:g} s is outside the recording, which lasted {seconds_text(session.duration_s)}")


def _find_operation(session: Session, name: str) -> tuple[str, BuildUp | None]:
    """Return the title and the build-up of the operation with this name.

    If several operations have this name, the operation with the largest peak is chosen.
    """
    every = dict(zip(unique_names(session.operations), session.operations, strict=True))
    chosen = selected(name, every)
    if not chosen:
        titles = [repr(printable(title)) for title in every]
        more = f" and {len(titles) - _LISTED:,} more" if len(titles) > _LISTED else ""
        known = f"the session has {', '.join(titles[:_LISTED])}{more}"
        raise UsageError(f"no operation {name!r}; {known if titles else 'the session has no operations'}")
    operation = max(chosen, key=lambda operation: operation.rss_peak or 0)
    peak = operation.of("rss").peak
    when = "" if peak is None else f" at {span_text((peak.from_s, peak.to_s))}"
    return f"Peak of {clip(name, _PATH)}{when}", build_up.of_operation(session, operation)


def _write_percent(size: int, whole: int) -> str:
    return f"{size / whole:.0%}" if whole else UNKNOWN


def as_markdown(whole: BuildUpReport) -> str:
    """Return the build-up as GitHub's Markdown; the text ends with a line break."""
    blocks = [
        [f"### {code(whole.command)}"],
        [f"**{text(whole.title)}**"],
        [f"- {text(line)}" for line in join_lines(whole.lines)],
    ]
    for table in whole.tables.values():
        blocks += render_markdown(table)
    blocks.append([f"- {text(note)}" for note in whole.notes])
    return join_blocks(blocks)


def as_text(whole: BuildUpReport) -> RenderableType:
    """Return the build-up for Rich to print."""
    parts: list[RenderableType] = [
        Text("BUILD-UP OF MEMORY", style="bold"),
        Text(whole.command),
        Text(),
        Text(whole.title, style="bold"),
        pairs(((f"  {heading}", Text(text)) for heading, text in whole.lines), FIRST_COLUMN),
    ]
    for title, table in whole.tables.items():
        if table.rows:
            parts += [Text(), Text(title, style="bold"), _TreeTable(table)]
        if table.more:
            parts.append(Text(f"… {table.more}", style="dim"))
    parts.append(Text())
    parts += [Text(printable(note), style="dim") for note in whole.notes]
    return Group(*parts)


class _TreeTable(NamedTuple):
    """A table whose last column (the code) is indented and wrapped. In a narrow console, this column comes first."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = self.table
        last = len(table.columns) - 1
        figures = sum(column_widths(table)[:last]) + last
        if figures > options.max_width - _LEAST_NAME:
            yield Fitting(table.with_columns([last, *range(last)]))
            return
        grid = render_table(table)
        grid.padding = (0, 2, 0, 0)
        yield grid
