"""The whole build-up of a peak or a moment: which code took the memory, what it is, and what was not seen.

It is written for a terminal (80 columns, no colour needed), and as Markdown for a pull request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment, Segments
from rich.table import Table as Grid
from rich.text import Text

from nncftools.analysis import build_up, memory_kinds
from nncftools.analysis.build_up import NOT_SEEN, BuildUp
from nncftools.analysis.comparison import function_of, unique_names
from nncftools.analysis.frames import branches, tree_of
from nncftools.analysis.gates import selected
from nncftools.analysis.memory_kinds import Kinds
from nncftools.analysis.peak_text import span_text, when_text
from nncftools.errors import NncfToolsError, UsageError
from nncftools.render import markdown
from nncftools.render.markdown import code, text
from nncftools.render.peak_lines import as_sentences
from nncftools.render.stacks import PEAK, kind_name, lines_of, missing, moment_text
from nncftools.render.table import FIRST_COLUMN, Cell, Column, Fitting, Row, Table, fits, painted, pairs
from nncftools.render.view import command_text
from nncftools.session.model import MappingGroup, Process
from nncftools.session.session import Session
from nncftools.units import UNKNOWN, MemoryUnit, printable, seconds_text, shortened

_SHARE = 0.01
"""A part of the memory that is smaller has no row."""
_MOST = 60
_DEEPEST = 12
_PATH = 60
_LISTED = 20
_LEAST_NAME = 30
"""Columns of a terminal for code; with fewer, it has lines of its own."""


@dataclass(frozen=True, kw_only=True)
class BuildUpReport:
    """A build-up to show."""

    title: str
    """What it is of: the peak of the run, of an operation, or a moment."""
    session: Session
    build_up: BuildUp
    unit: MemoryUnit
    whole: str = PEAK
    """What it is of, in a sentence."""
    is_growth: bool = False
    """Whether it is what grew between two moments: what mappings say is of one moment."""

    @property
    def lines(self) -> list[tuple[str, str]]:
        """The summary, as under the headline of the report."""
        return lines_of(self.session, self.build_up, self.unit, self.whole, has_kinds=not self.is_growth)

    @property
    def _kinds(self) -> Kinds | None:
        return None if self.is_growth else memory_kinds.near(self.session, self.build_up.at_s, self.build_up.size)

    @property
    def code(self) -> Table:
        """The code that took the memory: callers above what they called."""
        branch_rows, more = branches(tree_of(self.build_up), _SHARE, _MOST)
        rows = []
        for row in branch_rows:
            certain = UNKNOWN if row.certain is None else _percent(row.certain, row.size)
            rows.append(self._row(row.size, self.build_up.size, certain, row.label, depth=min(row.depth, _DEEPEST)))
        return self._table(("certain",), "code", rows, f"{more:,} smaller rows" if more else "")

    @property
    def processes(self) -> Table:
        """What each process held, if there are several."""
        sums: Counter[int | None] = Counter()
        for part in self.build_up.parts:
            sums[part.process] += part.size
        by_id: dict[int | None, Process] = {process.id: process for process in self.session.processes}
        rows = []
        for number, size in sums.most_common():
            process = by_id.get(number, Process(id=-1))
            pid = UNKNOWN if process.pid is None else f"{process.pid}"
            name = shortened(printable(process.name), _PATH) or "?"
            rows.append(self._row(size, self.build_up.size, pid, name))
        return self._table(("pid",), "process", rows if len(rows) > 1 else [])

    @property
    def kinds(self) -> Table:
        """What the memory is, by the mappings."""
        rows, kinds = [], self._kinds
        if kinds is not None and not kinds.is_other_memory:
            rows = [self._kind(group, kinds.total) for group in kinds.groups if group.rss >= kinds.total * _SHARE / 10]
            if kinds.not_read >= kinds.total * _SHARE:
                others = "other processes: their mappings were not read"
                rows.append(self._row(kinds.not_read, kinds.total, *[UNKNOWN] * 4, others))
        return self._table(("private", "shared", "clean", "copied"), "memory", rows)

    def _kind(self, group: MappingGroup, whole: int) -> Row:
        private, shared = group.private_clean + group.private_dirty, group.shared_clean + group.shared_dirty
        is_file = group.kind in {"file", "other_files", "libraries"}
        sizes = *map(self.unit.text, (private, shared, group.clean)), self.unit.text(group.anonymous) if is_file else ""
        name = shortened(printable(group.file), _PATH) if group.kind == "file" else kind_name(group)
        return self._row(group.rss, whole, *sizes, name)

    def _row(self, size: int, whole: int, *texts: str, depth: int = 0) -> Row:
        return Row(cells=[*map(Cell, (self.unit.text(size), _percent(size, whole), *texts))], depth=depth)

    def _table(self, figures: Sequence[str], name: str, rows: Sequence[Row], more: str = "") -> Table:
        columns = [*map(Column, (f"{self.unit}", "share", *figures)), Column(name, is_text=True)]
        return Table(columns=columns, rows=rows, more=more)

    @property
    def tables(self) -> Sequence[tuple[str, Table]]:
        """The tables with their titles; those without rows are not shown."""
        return [("Code", self.code), ("Processes", self.processes), ("Memory", self.kinds)]

    @property
    def notes(self) -> Iterator[str]:
        """What a reader should know about the tables."""
        kinds = self._kinds
        if kinds is None and not self.is_growth:
            yield "the kinds of memory were not read"
        elif kinds is not None and not kinds.is_other_memory:
            when = "" if kinds.is_of_moment else f"the mappings are those {moment_text(kinds, self.unit)}; "
            yield f"{when}clean: the kernel can drop it and read it again; copied: changed pages of a mapped file"
        yield "certain: its calls went on while memory rose; the rest is likely: the stack before or after the rise"
        yield "freed memory is taken to be what came last; where it was older, its function stands for a newer one"
        if self.build_up.sum_of(NOT_SEEN):
            unless = "no stack within a second of the rise, or the thread is not known"
            yield f"not seen: {missing(self.session, unless)}"


def build_up_report(
    session: Session,
    unit: MemoryUnit,
    operation: str | None = None,
    at_s: float | None = None,
    between_s: tuple[float, float] | None = None,
) -> BuildUpReport:
    """Return the build-up of the peak of a session, of one of its operations, of a moment, or of growth.

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
        rise = build_up.grown_between(session, from_s, to_s)
        if rise is not None and not rise.size:
            raise NncfToolsError(f"{title}: no process grew")
    elif at_s is not None:
        title, whole = f"At {seconds_text(_checked(at_s, session))}", "this memory"
        rise = build_up.at(session, at_s)
    else:
        title, rise = f"Peak {when_text(session)}".rstrip(), build_up.of_peak(session)
    if rise is None:
        raise NncfToolsError(f"{title}: no stacks: {missing(session)}")
    title = f"{title}: RSS {unit.label(rise.size)}"
    return BuildUpReport(
        title=title, session=session, build_up=rise, unit=unit, whole=whole, is_growth=between_s is not None
    )


def _checked(at_s: float, session: Session) -> float:
    if not 0 <= at_s <= session.duration_s:
        raise UsageError(f"{at_s:g} s is outside of the recording, which lasted {seconds_text(session.duration_s)}")
    return at_s


def _of_operation(session: Session, name: str) -> tuple[str, BuildUp | None]:
    every = dict(zip(unique_names(session.operations), session.operations, strict=True))
    chosen = selected(name, {title: function_of(operation) for title, operation in every.items()})
    if chosen is None:
        there = [repr(printable(title)) for title in every]
        more = f" and {len(there) - _LISTED:,} more" if len(there) > _LISTED else ""
        known = f"the session has {', '.join(there[:_LISTED])}{more}" if there else "the session has no operations"
        raise UsageError(f"no operation {name!r}; {known}")
    operation = every[chosen]
    peak = operation.of("rss").peak
    when = "" if peak is None else f" at {span_text((peak.from_s, peak.to_s))}"
    return f"Peak of {shortened(printable(name), _PATH)}{when}", build_up.of_operation(session, operation)


def _percent(size: int, whole: int) -> str:
    return f"{size / whole:.0%}" if whole else UNKNOWN


_TITLE = 200


def as_markdown(whole: BuildUpReport) -> str:
    """Return the build-up as GitHub's Markdown; it ends with a line break."""
    blocks = [
        [f"### {code(shortened(command_text(whole.session), _TITLE))}"],
        [f"**{text(whole.title)}**"],
        [f"- {text(line)}" for line in as_sentences(whole.lines)],
        *(block for _, table in whole.tables for block in markdown.painted(table)),
        [f"- {text(printable(note))}" for note in whole.notes],
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def as_text(whole: BuildUpReport) -> RenderableType:
    """Return the build-up for Rich to print."""
    return Group(
        Text("BUILD-UP OF MEMORY", style="bold"),
        Text(shortened(command_text(whole.session), _TITLE)),
        Text(),
        Text(whole.title, style="bold"),
        pairs(((f"  {heading}", Text(text)) for heading, text in whole.lines), FIRST_COLUMN),
        *_tables(whole),
        Text(),
        *(Text(printable(note), style="dim") for note in whole.notes),
    )


def _tables(whole: BuildUpReport) -> Iterator[RenderableType]:
    for title, table in whole.tables:
        if table.rows:
            yield Text()
            yield Text(title, style="bold")
            yield _Painted(table)
        if table.more:
            yield Text(f"… {table.more}", style="dim")


class _Painted:
    """A table whose last column is indented; what does not fit is wrapped at the same indentation.

    In a narrow console, this column of a tree is below the figures, and that of another table comes first.
    """

    def __init__(self, table: Table) -> None:
        self._table, self._is_tree = table, any(row.depth for row in table.rows)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table, last = self._table, len(self._table.columns) - 1
        figures = _grid(table.with_columns(range(last)))
        if fits(figures, console, options.update(max_width=options.max_width - _LEAST_NAME)):
            yield _grid(table)
        elif not self._is_tree:
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
