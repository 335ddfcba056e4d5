"""The formats of a report, by name.

A format is one function, ``(session, view) -> Content``. To add a format, write its file and add a line here. The type
of its result decides where the result can go:

- ``str``: text, which is written unchanged;
- a Rich renderable: text that adapts to the terminal; elsewhere its lines have at most 100 characters;
- ``bytes``: a document for another program, which is never shown on a terminal;
- a mapping of file names to functions that write these files: several files for a folder.

``json`` and ``csv`` are for scripts: they have all metrics in bytes and seconds, whatever the view is.
"""

from __future__ import annotations

import importlib
import pathlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Union

from nncftools.errors import UsageError
from nncftools.units import not_one_of

if TYPE_CHECKING:
    from rich.console import RenderableType

    from nncftools.render.view import View
    from nncftools.session.session import Session

Files = Mapping[str, Callable[[pathlib.Path], None]]
"""Functions that write files, by file name."""
Content = Union["RenderableType", bytes, Files]
Format = Callable[["Session", "View"], Content]

TEXT, PAGE = "text", "html"
FORMATS = {
    TEXT: "nncftools.render.tables.text:report",
    "markdown": "nncftools.render.tables.markdown:report",
    "json": "nncftools.render.exports.summary_json:report",
    "csv": "nncftools.render.exports.samples_csv:report",
    PAGE: "nncftools.render.page.page:report",
    "terminal": "nncftools.render.terminal.chart:report",
    "memory-log": "nncftools.render.exports.memory_log:report",
    "session": "nncftools.render.exports.session_json:report",
    "perfetto": "nncftools.render.exports.perfetto:report",
    "openmetrics": "nncftools.render.exports.openmetrics:report",
    "collapsed": "nncftools.render.exports.collapsed:report",
    "speedscope": "nncftools.render.exports.speedscope:report",
    "parquet": "nncftools.render.exports.samples_parquet:report",
    "hyperfine": "nncftools.render.exports.hyperfine:report",
    "bencher": "nncftools.render.exports.bencher:report",
    "benchmark-action": "nncftools.render.exports.benchmark_action:report",
}


def format_named(name: str) -> Format:
    """Return the function that makes a report in this format. Raises UsageError when there is no such format."""
    if name not in FORMATS:
        raise UsageError(not_one_of(name, FORMATS))
    module, _, function = FORMATS[name].partition(":")
    found: Format = getattr(importlib.import_module(module), function)
    return found
