"""The view that renderers receive beside the session (metrics, unit, levels), and the formats of a report by name.

A format is one function, ``(session, view) -> Content``. To add a format, write a function and add a line here. The
type of the result decides where the result can go:

- ``str``: text, which is written unchanged;
- a Rich renderable: text that adapts to the terminal; elsewhere, lines have at most 100 characters;
- ``bytes``: a document for another program, which is never shown on a terminal;
- a mapping of file names to functions that write these files: several files for a folder.

``json`` and ``csv`` are for scripts: they have all metrics in bytes and seconds, for any view.
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
    """The choices of the user about reports."""

    metrics: Sequence[str]
    """Memory metrics in the order of display."""
    unit: MemoryUnit = MemoryUnit.MiB
    from_zero: bool = False
    """Subtract the first sample from memory."""
    title: str = ""
    depth: int = 1
    """Number of levels of nested operations to show."""
    brief: bool = False
    """Whether a text is the short default report."""
    asked: Sequence[str] = ()
    """Metrics that the user named: the default report has their peaks."""

    @property
    def above(self) -> str:
        """Text to add to the name of memory that counts from the first sample; empty for other memory."""
        return " above the first sample" if self.from_zero else ""


def label(column: str) -> str:
    """Return the display name of a column."""
    metric = metrics.of(column)
    return printable(column if metric is None else metric.label)


def clip(text: str, length: int) -> str:
    """Return a text without control characters, shortened in the middle to at most ``length`` characters."""
    return shortened(printable(text), length)


def brief_label(size: float, unit: MemoryUnit) -> str:
    """Return a size without needless digits, and the unit: ``254 MiB``."""
    return f"{unit.brief(size)} {unit}"


BREAK = "<br>"


def plotly_text(text: str, letters: int = 70) -> str:
    """Return a text in lines of at most ``letters`` for plotly, which interprets some HTML."""
    from html import escape

    return BREAK.join(escape(line, quote=False) for line in textwrap.wrap(text, letters))


def command_text(session: Session) -> str:
    """Return the command as typed in a shell, without characters that a terminal would interpret."""
    return printable(shlex.join(session.command)) or printable(session.name) or "unknown command"


def write_title(session: Session, view: View, length: int) -> str:
    """Return the title of the view, or else the command, in at most ``length`` characters."""
    return shortened(printable(view.title) or command_text(session), length)


def as_json(document: object) -> str:
    """Return a document as indented JSON with a line break at the end."""
    encoded = msgspec.json.encode(document)
    return msgspec.json.format(encoded, indent=2).decode() + "\n"


Files = Mapping[str, Callable[[pathlib.Path], None]]
"""Functions that write files, by file name."""
Content = Union["RenderableType", bytes, Files]
END = math.inf
"""The moment when the code of the program had finished, in place of a number of seconds."""
FROM_ZERO = "_from-zero"
"""End of the file names of figures that count from the first sample."""


def log_stem(metric: str, *, from_zero: bool, rank: str = "") -> str:
    """Return the file name of the log of a metric without ending; ``rank`` is the suffix of a rank of a job."""
    return f"{metric.replace('/', '_')}_memory_usage{rank}{FROM_ZERO if from_zero else ''}"


Format = Callable[["Session", "View"], Content]

SEPARATOR = " · "
"""Between parts of a line."""
TEXT = "text"
PAGE = "html"
PICTURE = "picture"
"""Stands among the formats for the picture of ``--plot``, for a file with the ending of a picture."""
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
"""Formats by the ending of a file. Without ``--format``, the first format is written."""
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
"""Formats of earlier versions: the format with the same figures."""


def format_named(name: str) -> Format:
    """Return the function that makes a report in this format. Raises UsageError when there is no such format."""
    if name not in FORMATS:
        raise UsageError(not_one_of(name, FORMATS))
    module, _, function = FORMATS[name].partition(":")
    report: Format = getattr(importlib.import_module(module), function)
    return report
