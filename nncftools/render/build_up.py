"""The whole build-up of a peak or a moment: which code took the memory, what it is, and what was not seen.

It is written for a terminal (80 columns, no colour needed), and as Markdown for a pull request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment, Segments
from rich.table import Table as Grid
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
from nncftools.render.stacks import PEAK, kind_name, lines_of, missing, moment_text
from nncftools.render.table import (
    FIRST_COLUMN,
    Cell,
    Column,
    Fitting,
    Row,
    Table,
    column_widths,
    painted,
    pairs,
    render_markdown,
)
from nncftools.render.view import END, command_text
from nncftools.session.model import Frame, MappingGroup, Process
from nncftools.units import UNKNOWN, MemoryUnit, printable, seconds_text, shortened

_SHARE = 0.01
"""A part of the memory that is smaller has no row."""
_MOST = 60
_DEEPEST = 12
_TITLE, _PATH = 200, 60
_LISTED = 20
_LEAST_NAME = 30
"""Columns of a terminal for code; with fewer, it has lines of its own."""


_ALMOST_ALL = 0.99
"""A frame that holds so much of its caller shares the row with it."""
_LESS_CERTAIN = 0.2
"""A frame that is less certain than its caller, by this part of the bytes, has a row of its own."""


class TreeRow(NamedTuple):
    """A row: functions that call each other and hold the same memory, in bytes."""

    depth: int
    size: int
    certain: int | None
    """The part of ``size`` that certainly belongs there; None where nothing was seen."""
    label: str
    or_later: str = ""
    """The function that ran later and may hold most of this memory instead."""


def branches(root: Node, share: float, most: int) -> tuple[list[TreeRow], int]:
    """Return rows that hold at least ``share`` of the whole, each above its parts, and how many are left out.

    Of more than ``most`` rows, the smallest are left out. A function with nearly all of its caller shares its row.
    """
    every = list(_rows(root, 0, root.size * share, None))
    largest = sorted((row.size for row in every), reverse=True)[:most]
    kept = [row for row in every if row.size >= largest[-1]][:most]
    return kept, len(every) - len(kept)


def _rows(node: Node, depth: int, least: float, before: Frame | None) -> Iterator[TreeRow]:
    small = [child.size for child in node.children.values() if child.size < least]
    for child in node.sorted_children[: len(node.children) - len(small)]:
        chain = _chain(child)
        frames = [callee.frame for callee in chain if callee.frame is not None]
        certain = None if child.kind in WITHOUT_STACK else chain[-1].certain
        yield TreeRow(depth, child.size, certain, child.text or _joined(frames, before), chain[-1].or_later)
        yield from _rows(chain[-1], depth + 1, least, chain[-1].frame)
    if small and sum(small) >= least:
        yield TreeRow(depth, sum(small), None, f"… {len(small):,} smaller")


def _chain(node: Node) -> Sequence[Node]:
    """Return a node and those below it that hold nearly the same memory with nearly the same certainty."""
    chain, least, least_certain = [node], node.size * _ALMOST_ALL, node.certain - node.size * _LESS_CERTAIN
    while largest := chain[-1].sorted_children[:1]:
        if largest[0].size < least or largest[0].certain < least_certain:
            break
        chain += largest
    return chain


def _joined(frames: Sequence[Frame], before: Frame | None) -> str:
    """Return the first and the last of some frames, and who called the library of the last one."""
    texts: list[str] = []
    last = -1
    for index in sorted({0, calling_place(frames) or 0, len(frames) - 1}):
        texts += ["…"] if index > last + 1 else []
        texts.append(brief_label(frames[index], before))
        before, last = frames[index], index
    return SEPARATOR.join(texts)


class BuildUpReport(NamedTuple):
    """A build-up to show."""

    title: str
    """What it is of: the peak of the run, of an operation, a moment, or growth; and how much that is."""
    command: str
    lines: Sequence[tuple[str, str]]
    """The summary, as under the headline of the report."""
    tables: Mapping[str, Table]
    """By their titles; those without rows are not shown."""
    notes: Sequence[str]
    """What a reader should know about the tables."""
    rise: BuildUp


def build_up_report(
    session: Session,
    unit: MemoryUnit,
    operation: str | None = None,
    at_s: float | None = None,
    between_s: tuple[float, float] | None = None,
) -> BuildUpReport:
    """Return the build-up of the peak of a session, of one of its operations, of a moment (``END``), or of growth.

    Raises UsageError for an operation or a moment that is not there, NncfToolsError when there are no stacks.
    """
    if session.snapshots is None:
        raise NncfToolsError("this session was recorded without stacks", remedy="stacks")
    whole = PEAK
    if operation is not None:
        title, rise = _of_operation(session, operation)
    elif between_s is not None:
        from_s, to_s = (_checked(moment, session) for moment in between_s)
        if from_s >= to_s:
            raise UsageError(f"{from_s:g} s is not before {to_s:g} s")
        title, whole = f"Growth from {seconds_text(from_s)} to {seconds_text(to_s)}", "the growth"
        rise = build_up.at(session, to_s, since_s=from_s)
        if rise is not None and not rise.size:
            raise NncfToolsError(f"{title}: no process grew")
    elif at_s == END:
        title, whole = "Still held at the end", "this memory"
        if (rise := build_up.at_end(session)) is not None:
            title += f", at {seconds_text(rise.at_s)}"
    elif at_s is not None:
        title, whole = f"At {seconds_text(_checked(at_s, session))}", "this memory"
        rise = build_up.at(session, at_s)
    else:
        title, rise = f"Peak {when_text(session)}".rstrip(), build_up.of_peak(session)
    if rise is None:
        raise NncfToolsError(f"{title}: no stacks: {missing(session)}")
    is_growth = between_s is not None  # what mappings say is of one moment
    kinds = None if is_growth else kinds_near(session, rise.at_s, rise.size)
    return BuildUpReport(
        f"{title}: RSS {unit.label(rise.size)}",
        shortened(command_text(session), _TITLE),
        lines_of(session, rise, whole),
        {"Code": _code(rise, unit), "Processes": _processes(rise, session, unit), "Memory": _memory(kinds, unit)},
        [*([] if is_growth else _notes_on_kinds(kinds, unit)), *_notes(session, rise)],
        rise,
    )


def _code(rise: BuildUp, unit: MemoryUnit) -> Table:
    """Return the code that took the memory: callers above what they called."""
    shown, more = branches(tree_of(rise), _SHARE, _MOST)
    rows = [
        _row(
            unit,
            (of.size, rise.size),
            _percent(of.certain, of.size),
            doubt(of.label, of.or_later),
            depth=min(of.depth, _DEEPEST),
        )
        for of in shown
    ]
    return _table(unit, ("certain",), "code", rows, f"{more:,} smaller rows" if more else "")


def _processes(rise: BuildUp, session: Session, unit: MemoryUnit) -> Table:
    """Return what each process held, if there are several."""
    sums: Counter[int | None] = Counter()
    for part in rise.parts:
        sums[part.process] += part.size
    by_id: dict[int | None, Process] = {process.id: process for process in session.processes}
    rows = []
    for number, size in sums.most_common():
        process = by_id.get(number, Process(id=-1))
        pid = UNKNOWN if process.pid is None else f"{process.pid}"
        rows.append(_row(unit, (size, rise.size), pid, shortened(printable(process.name), _PATH) or "?"))
    return _table(unit, ("pid",), "process", rows if len(rows) > 1 else [])


def _memory(kinds: Kinds | None, unit: MemoryUnit) -> Table:
    """Return what the memory is, by the mappings."""
    rows = []
    if kinds is not None and not kinds.is_other_memory:
        rows = [_kind(group, kinds.total, unit) for group in kinds.groups if group.rss >= kinds.total * _SHARE / 10]
        if kinds.not_read >= kinds.total * _SHARE:
            others = "other processes: their mappings were not read"
            rows.append(_row(unit, (kinds.not_read, kinds.total), *[UNKNOWN] * 4, others))
    return _table(unit, ("private", "shared", "clean", "copied"), "memory", rows)


def _kind(group: MappingGroup, whole: int, unit: MemoryUnit) -> Row:
    private, shared = group.private_clean + group.private_dirty, group.shared_clean + group.shared_dirty
    is_file = group.kind in {"file", "other_files", "libraries"}
    sizes = *map(unit.text, (private, shared, group.clean)), unit.text(group.anonymous) if is_file else ""
    name = shortened(printable(group.file), _PATH) if group.kind == "file" else kind_name(group)
    return _row(unit, (group.rss, whole), *sizes, name)


def _row(unit: MemoryUnit, part: tuple[int, int], *texts: str, depth: int = 0) -> Row:
    """Return a row about a part: its size, and that of the whole."""
    return Row(cells=[*map(Cell, (unit.text(part[0]), _percent(*part), *texts))], depth=depth)


def _table(unit: MemoryUnit, figures: Sequence[str], name: str, rows: Sequence[Row], more: str = "") -> Table:
    columns = [*map(Column, (f"{unit}", "share", *figures)), Column(name, is_text=True)]
    return Table(columns=columns, rows=rows, more=more)


def _notes_on_kinds(kinds: Kinds | None, unit: MemoryUnit) -> Iterator[str]:
    if kinds is None:
        yield "the kinds of memory were not read"
    elif not kinds.is_other_memory:
        when = "" if kinds.is_of_moment else f"the mappings are those {moment_text(kinds, unit)}; "
        yield f"{when}clean: the kernel can drop it and read it again; copied: changed pages of a mapped file"


def _notes(session: Session, rise: BuildUp) -> Iterator[str]:
    yield "certain: its calls went on while memory rose; the rest is likely: the stack before or after the rise"
    yield "freed memory is known by its addresses; on the heap, what came last is taken to be freed"
    if rise.sum_of(NOT_SEEN):
        unless = "no stack within a second of the rise, or the thread is not known"
        yield f"not seen: {missing(session, unless)}"


def _checked(at_s: float, session: Session) -> float:
    if not 0 <= at_s <= session.duration_s:
        raise UsageError(f"{at_s:g} s is outside of the recording, which lasted {seconds_text(session.duration_s)}")
    return at_s


def _of_operation(session: Session, name: str) -> tuple[str, BuildUp | None]:
    every = dict(zip(unique_names(session.operations), session.operations, strict=True))
    chosen = selected(name, every)
    if not chosen:
        there = [repr(printable(title)) for title in every]
        more = f" and {len(there) - _LISTED:,} more" if len(there) > _LISTED else ""
        known = f"the session has {', '.join(there[:_LISTED])}{more}" if there else "the session has no operations"
        raise UsageError(f"no operation {name!r}; {known}")
    operation = max(chosen, key=lambda of: of.rss_peak or 0)
    peak = operation.of("rss").peak
    when = "" if peak is None else f" at {span_text((peak.from_s, peak.to_s))}"
    return f"Peak of {shortened(printable(name), _PATH)}{when}", build_up.of_operation(session, operation)


def _percent(size: int | None, whole: int) -> str:
    return UNKNOWN if size is None or not whole else f"{size / whole:.0%}"


def as_markdown(whole: BuildUpReport) -> str:
    """Return the build-up as GitHub's Markdown; it ends with a line break."""
    blocks = [
        [f"### {code(whole.command)}"],
        [f"**{text(whole.title)}**"],
        [f"- {text(line)}" for line in join_lines(whole.lines)],
        *(block for table in whole.tables.values() for block in render_markdown(table)),
        [f"- {text(note)}" for note in whole.notes],
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def as_text(whole: BuildUpReport) -> RenderableType:
    """Return the build-up for Rich to print."""
    return Group(
        Text("BUILD-UP OF MEMORY", style="bold"),
        Text(whole.command),
        Text(),
        Text(whole.title, style="bold"),
        pairs(((f"  {heading}", Text(text)) for heading, text in whole.lines), FIRST_COLUMN),
        *_tables(whole),
        Text(),
        *(Text(printable(note), style="dim") for note in whole.notes),
    )


def _tables(whole: BuildUpReport) -> Iterator[RenderableType]:
    for title, table in whole.tables.items():
        if table.rows:
            yield Text()
            yield Text(title, style="bold")
            yield _Painted(table)
        if table.more:
            yield Text(f"… {table.more}", style="dim")


class _Painted(NamedTuple):
    """A table whose last column is indented; what does not fit is wrapped at the same indentation.

    In a narrow console, this column of a tree is below the figures, and that of another table comes first.
    """

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table, last = self.table, len(self.table.columns) - 1
        figures = _grid(table.with_columns(range(last)))
        if sum(column_widths(table)[:last]) + last <= options.max_width - _LEAST_NAME:
            yield _grid(table)
        elif not any(row.depth for row in table.rows):
            yield Fitting(table.with_columns([last, *range(last)]))
        else:
            for lines, row in zip(console.render_lines(figures, options), [None, *table.rows], strict=True):
                yield Segments([*lines, Segment.line()])
                if row is not None:
                    yield Padding(Text(row.cells[-1].text), (0, 0, 0, 1 + row.depth))


def _grid(table: Table) -> Grid:
    result = painted(table, folds=True)
    result.padding = 0, 2, 0, 0
    return result
