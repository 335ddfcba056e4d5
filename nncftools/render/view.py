"""The user's choices for outputs (metrics, unit, levels), and the formats of reports by name.

A format is a function ``(session, view) -> Content``. To add a format, write a function, and add a line to ``FORMATS``
and to ``ENDINGS``. The type of the result decides where it may be written:

- ``str``: text, which is written unchanged;
- a Rich renderable: text that adapts to the terminal; outside a terminal, lines have at most 100 characters;
- ``bytes``: a document for another program, which is never shown on a terminal;
- a mapping of file names to functions that write these files: several files in a folder.

``json`` and ``csv`` are for scripts: they always have all metrics, in bytes and seconds.
"""

from __future__ import annotations

import importlib
import math
import pathlib
import shlex
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Union

import msgspec

from nncftools import metrics
from nncftools.analysis.session import Session
from nncftools.errors import UsageError
from nncftools.units import MemoryUnit, not_one_of, printable, shortened

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True)
class View:
    """The user's choices for an output."""

    metrics: Sequence[str]
    """Memory metrics in the order of display."""
    unit: MemoryUnit = MemoryUnit.MiB
    from_zero: bool = False
    """Whether the first sample is subtracted from memory."""
    title: str = ""
    depth: int = 1
    """Number of levels of nested operations to show."""
    brief: bool = False
    """Whether the text is the short default report."""
    asked: Sequence[str] = ()
    """Metrics that the user named; the default report shows their peaks."""

    @property
    def above(self) -> str:
        """``" above the first sample"``, to append to a metric's name, if ``from_zero`` is true; else empty."""
        return " above the first sample" if self.from_zero else ""


def label(column: str) -> str:
    """Return the label of a column in reports: ``RSS`` for ``rss``. An unknown column is its own label."""
    metric = metrics.of(column)
    return printable(column if metric is None else metric.label)


def clip(text: str, length: int) -> str:
    """Return a text without control characters, shortened in the middle to at most ``length`` characters."""
    return shortened(printable(text), length)


def brief_label(size: float, unit: MemoryUnit) -> str:
    """Return a size with the unit, without needless digits: ``254 MiB``."""
    return f"{unit.brief(size)} {unit}"


BREAK = "<br>"


def plotly_text(text: str, letters: int = 70) -> str:
    """Return a text for plotly in lines of at most ``letters`` characters, with HTML escaped."""
    from html import escape

    return BREAK.join(escape(line, quote=False) for line in textwrap.wrap(text, letters))


def command_text(session: Session) -> str:
    """Return the command as typed in a shell, without control characters."""
    return printable(shlex.join(session.command)) or printable(session.name) or "unknown command"


def write_title(session: Session, view: View, length: int) -> str:
    """Return the view's title; if there is none, the command. Both are shortened to ``length`` characters."""
    return shortened(printable(view.title) or command_text(session), length)


def as_json(document: object) -> str:
    """Return a document as indented JSON with a line break at the end."""
    encoded = msgspec.json.encode(document)
    return msgspec.json.format(encoded, indent=2).decode() + "\n"


Files = Mapping[str, Callable[[pathlib.Path], None]]
"""Functions that write files: ``{file name: function}``."""
Content = Union["RenderableType", bytes, Files]
END = math.inf
"""Used in place of a moment in seconds: the moment when the program's code had ended."""
FROM_ZERO = "_from-zero"
"""Suffix of file names if the first sample is subtracted from the figures."""


def log_stem(metric: str, *, from_zero: bool, rank: str = "") -> str:
    """Return the file name of a metric's log without ``.txt``; ``rank`` is appended to the name for a rank of a job."""
    return f"{metric.replace('/', '_')}_memory_usage{rank}{FROM_ZERO if from_zero else ''}"


Format = Callable[["Session", "View"], Content]

SEPARATOR = " · "
"""Separator between the parts of a line."""
TEXT = "text"
PAGE = "html"
PICTURE = "picture"
"""The format of a file whose name ends in ``.png``, ``.svg`` or ``.pdf``."""
PICTURES = (".png", ".svg", ".pdf")
ENDINGS = {
    ".txt": (TEXT, "terminal", "markdown", "csv", "collapsed"),
    ".md": ("markdown",),
    ".html": (PAGE,),
    ".htm": (PAGE,),
    ".json": ("json", "session", "perfetto", "speedscope", "bencher", "benchmark-action"),
    ".csv": ("csv",),
    ".parquet": ("parquet",),
    **dict.fromkeys(PICTURES, (PICTURE,)),
}
"""Formats by file ending. If ``--format`` is not given, the first format is used."""
FORMATS = {
    TEXT: "nncftools.render.text:report",
    "markdown": "nncftools.render.text:markdown_report",
    "json": "nncftools.render.summary_json:report",
    "csv": "nncftools.render.samples:csv_report",
    PAGE: "nncftools.render.page:report",
    "terminal": "nncftools.render.terminal_chart:report",
    "memory-log": "nncftools.render.samples:memory_log_report",
    "session": "nncftools.render.samples:session_report",
    "perfetto": "nncftools.render.perfetto:report",
    "collapsed": "nncftools.render.stacks:collapsed_report",
    "speedscope": "nncftools.render.stacks:report",
    "parquet": "nncftools.render.samples:parquet_report",
    "bencher": "nncftools.render.summary_json:bencher_report",
    "benchmark-action": "nncftools.render.summary_json:benchmark_action_report",
}
REMOVED = {"openmetrics": "json", "hyperfine": "json"}
"""Formats of earlier versions: for each, the present format with the same figures."""


def format_named(name: str) -> Format:
    """Return the function that makes a report in this format. Raises UsageError if the format is unknown."""
    if name not in FORMATS:
        raise UsageError(not_one_of(name, FORMATS))
    module, _, function = FORMATS[name].partition(":")
    report: Format = getattr(importlib.import_module(module), function)
    return report
