"""The report as Markdown tables, to be pasted into a pull request."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from nncftools.analysis.hints import hints
from nncftools.analysis.summary import level
from nncftools.analysis.timeline import timeline
from nncftools.render.operations import operations
from nncftools.render.tables import facts
from nncftools.render.tables.cells import signed
from nncftools.render.tables.ranks import ranks
from nncftools.render.view import View, command_text, label
from nncftools.text import printable, shortened
from nncftools.units import UNKNOWN, seconds_text, size_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from nncftools.render.operations import Operation
    from nncftools.session.model import Session
    from nncftools.units import MemoryUnit

_TITLE = 200
_NAME = 60
_MANY = 60
"""Rows; of more operations the longest are shown: a comment on GitHub holds 65,536 characters."""
_MEANT = re.compile(r"([\\`*_\[\]<|~$&])")
"""What Markdown, HTML or mathematics in it would read as more than text."""
_PINGS = re.compile(r"[@#]|\bGH-|://|www\.")
"""What GitHub makes a mention, a reference or a link of, unless it is code."""


def report(session: Session, view: View) -> str:
    """Return the report; it ends with a line break."""
    title = text(shortened(printable(view.title), _TITLE)) or code(shortened(command_text(session), _TITLE))
    blocks = [
        [f"### {title}"],
        _peak(session, view),
        _memory(session, view),
        _ranks(session, view.unit),
        *_operations(session, view),
        _table(["Run", ""], ((text(name), text(said)) for name, said in _facts(session, view.unit)), 2),
        *([f"> **Note:** {text(printable(hint))}"] for hint in hints(session, view.unit)),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def text(plain: str) -> str:
    """Return what shows as ``plain`` in a paragraph or a cell: of one line, nothing in it taken for Markdown."""
    line = " ".join(plain.split())
    return code(line) if _PINGS.search(line) else _MEANT.sub(r"\\\1", line)


def code(plain: str) -> str:
    """Return a code span that shows ``plain``, also in a cell."""
    line = " ".join(plain.split())
    longest = max(map(len, re.findall("`+", line)), default=0)
    fence = "`" * (longest + 1)
    padding = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{padding}{line}{padding}{fence}".replace("|", r"\|") if line else ""


def _peak(session: Session, view: View) -> list[str]:
    peak = facts.peak(session, view)
    if peak is None:
        return []
    most, *rest = peak
    return [" ".join([f"**Peak memory: {text(most)}**", *(text(part) for part in rest if part)])]


def _memory(session: Session, view: View) -> list[str]:
    headings = [f"Memory, {view.unit}", "Peak", "at", "Final", "Delta", "Average", "Min"]
    return _table(headings, (_level(session, name, view) for name in view.metrics), 1)


def _level(session: Session, name: str, view: View) -> list[str]:
    of, unit = level(session.samples, name, session.peaks), view.unit
    of = of.from_zero() if view.from_zero else of
    figures = (seconds_text(of.at_s), unit.text(of.final), signed(of.delta, unit), unit.text(of.average))
    heading = f"{label(name)} from zero" if view.from_zero else label(name)
    return [text(heading), f"**{unit.text(of.peak)}**", *figures, unit.text(of.lowest)]


def _ranks(session: Session, unit: MemoryUnit) -> list[str]:
    found = ranks(session, unit)
    if found is None:
        return []
    rows = [
        [f"**{cell}**" if place == found.worst else cell for cell in map(text, cells)]
        for place, cells in enumerate(found.rows)
    ]
    return _table(found.headings, rows, found.texts)


def _operations(session: Session, view: View) -> Iterator[list[str]]:
    every = operations(timeline(session.phases, view.depth))
    if not every:
        return
    longest = sorted(every, key=lambda operation: operation.phase.duration_s, reverse=True)[:_MANY]
    shown = sorted(longest, key=lambda operation: operation.number)
    unit = view.unit
    headings = ["#", "Operation", "Start", "Duration", f"RSS start, {unit}", "end", "delta", "peak"]
    headings += ["Cores", "Storage read", "written", "Calls read", "written"]
    yield _table(headings, (_operation(operation, unit) for operation in shown), 2)
    if len(shown) < len(every):
        yield [f"… and {len(every) - len(shown):,} shorter ones"]


def _operation(operation: Operation, unit: MemoryUnit) -> list[str]:
    phase = operation.phase
    indent = "&nbsp;&nbsp;" * phase.depth
    title = text(shortened(operation.title, _NAME))
    peak = unit.text(phase.rss_peak)
    cores = UNKNOWN if phase.cpu_average is None else f"{phase.cpu_average:.2f}"
    return [
        f"{operation.number}",
        f"{indent}{title}",
        seconds_text(phase.start_s),
        seconds_text(phase.duration_s),
        unit.text(phase.rss_start),
        unit.text(phase.rss_end),
        signed(phase.delta, unit),
        f"**{peak}**" if phase.has_peak else peak,
        cores,
        *(size_text(size) for size in operation.figures),
    ]


def _facts(session: Session, unit: MemoryUnit) -> Iterator[tuple[str, str]]:
    yield "When", facts.run(session)
    yield from facts.facts(session, unit)


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]], numbers_from: int) -> list[str]:
    """Return a table whose columns from the place ``numbers_from`` on stand on the right."""
    rules = ["---" if place < numbers_from else "---:" for place in range(len(headings))]
    return [f"| {' | '.join(cells)} |" for cells in (headings, rules, *rows)]
