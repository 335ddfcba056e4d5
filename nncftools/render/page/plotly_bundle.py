"""The program of the plotly package, packed: the browser unpacks it."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import pathlib
import zlib
from typing import NamedTuple

from nncftools.errors import NncfToolsError

_FILE = "package_data/plotly.min.js"
_LEVEL = 6
"""Takes 0.12 s; a higher one makes the page smaller by 0.2 %."""


class Bundle(NamedTuple):
    """A program for a page."""

    packed: str
    """In zlib's format, in base64."""
    source: str
    """The source expression that allows exactly this program in a Content-Security-Policy."""


def bundle() -> Bundle:
    """Return plotly's program. Raises NncfToolsError when plotly is not installed."""
    program = _program()
    return Bundle(base64.b64encode(zlib.compress(program, _LEVEL)).decode(), source_of(program))


def source_of(program: bytes) -> str:
    """Return the source expression that allows exactly this program in a Content-Security-Policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(program).digest()).decode()}'"


def _program() -> bytes:
    """Return the file itself if it is where plotly has it: to import plotly takes as long as to pack it."""
    found = importlib.util.find_spec("plotly")
    file = None if found is None or found.origin is None else pathlib.Path(found.origin).parent / _FILE
    if file is not None and file.is_file():
        return file.read_bytes()
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        message = "html needs plotly; install it with: pip install 'nncf-tools[html]'"
        raise NncfToolsError(message) from error
    return str(get_plotlyjs()).encode()
