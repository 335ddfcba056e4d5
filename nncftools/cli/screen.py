"""Prints with Rich on a terminal, and as plain text without padding elsewhere."""

from __future__ import annotations

import codecs
import errno
import io
import logging
import os
import select
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from nncftools.errors import NncfToolsError
from nncftools.files import has_room
from nncftools.units import find_breaks, printable, shortened

if TYPE_CHECKING:
    from rich.console import RenderableType

    from nncftools.sampler.client import Starter

PLAIN_WIDTH = 100
WIDEST_HELP = 120
"""Largest width of the help: longer lines are hard to read, even on a wide terminal."""
OUT = "stdout"
ERR = "stderr"
_ALIKE = "nncftools.alike"
_IN_ASCII = {
    "…": "...",
    "×": "x",
    "·": ".",
    "›": ">",
    "→": "->",
    "≤": "<=",
    "≥": ">=",
    "µ": "u",
    "–": "-",
    "—": "-",
    "−": "-",
    **dict(zip("▁▂▃▄▅▆▇█", "._:=+*#@", strict=True)),
}
"""Replacements for characters that an encoding lacks."""
_BOLD = "1"
RED = "1;31"
_PIECE = 1000
"""Largest number of characters in a write. A pipe that is ready for writing takes at least 4,096 bytes (PIPE_BUF)."""
_PAUSE_MS = 20
starter: Starter | None = None
"""Receives signals during a recording; None outside recordings."""


def prepare() -> None:
    """Make printing possible even if standard output or error is closed, or cannot encode a character.

    Also silence the logs of libraries: Matplotlib's advice on folders would appear in the middle of a summary.
    """
    codecs.register_error(_ALIKE, _alike)
    # Replace closed streams, so that no file gets the descriptor of a standard stream.
    if sys.stdout is None:
        unwritable = os.open(os.devnull, os.O_RDONLY)
        sys.stdout = os.fdopen(unwritable, "w", encoding="utf-8")
    sys.stderr = sys.stderr or _nowhere()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ALIKE)
    logging.getLogger().addHandler(logging.NullHandler())


def _alike(error: UnicodeError) -> tuple[str | bytes, int]:
    """Return a similar replacement for a character that cannot be encoded, or else an escape sequence."""
    assert isinstance(error, UnicodeEncodeError)
    character = error.object[error.start]
    replacement = _IN_ASCII.get(character) or character.encode("ascii", "backslashreplace").decode("ascii")
    return replacement, error.start + 1


def to_stdout(content: RenderableType | bytes) -> None:
    """Print to standard output.

    Raises BrokenPipeError if the reader has ended, and NncfToolsError after other failures.
    """
    try:
        _write(content, sys.stdout)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise lost_output(error) from error


def lost_output(error: OSError) -> NncfToolsError:
    """Return the error for a failed write to standard output; drop all further output."""
    _drop(OUT)
    why = "is closed" if error.errno == errno.EBADF else f"cannot be written: {error.strerror}"
    return NncfToolsError(f"standard output {why}")


def to_stderr(content: RenderableType) -> None:
    """Print to standard error. Failures are ignored, because the actual work is done."""
    if_read(content, ERR)


def error(text: str, lines: Sequence[str] = ()) -> None:
    """Print an error to standard error: ``lines`` if there are any, or else ``text`` in a line."""
    first, *more = lines or (text,)
    message(first, "error: ", RED)
    for line in more:
        to_stderr(f"{printable(shortened(line, _PIECE))}\n")


def message(text: str, kind: str = "", style: str = "") -> None:
    """Print a message in a line to standard error, with ``kind`` before the text."""
    prefix = f"nncf-tools: {kind}"
    lines = _fold(f"{prefix}{printable(' '.join(text.split()))}")
    if style:
        kind = f"{styled(kind.strip(), ERR, style)} "
    to_stderr(f"{styled('nncf-tools:', ERR)} {kind}{lines.removeprefix(prefix)}\n")


def line(text: str, style: str = "") -> None:
    """Print a line about progress to standard error."""
    lines = _fold(printable(shortened(text, _PIECE)))
    to_stderr(f"{styled(lines, ERR, style) if style else lines}\n")


def open_page(page: Path) -> None:
    """Open a page in the user's browser. If there is no browser, print the path of the page."""
    import webbrowser

    if not webbrowser.open(page.absolute().as_uri()):
        message(f"no browser could be opened; the page is {page}")


def _fold(text: str) -> str:
    """Return the text with line breaks between words, if standard error is a terminal."""
    width = shutil.get_terminal_size((0, 1)).columns if sys.stderr.isatty() else 0
    breaks = find_breaks(text, width) if width else ()
    parts = pairwise([0, *breaks, len(text)])
    return "\n".join(text[begin:end].rstrip() for begin, end in parts)


def styled(text: str, stream: str, style: str = _BOLD) -> str:
    """Return the text with escape sequences for a style, if the stream is a terminal with colours.

    The stream is ``OUT`` or ``ERR``.
    """
    terminal = os.environ.get("TERM", "")
    has_colours = terminal not in {"", "dumb"} and not os.environ.get("NO_COLOR")
    if has_colours and getattr(sys, stream).isatty():
        return f"\x1b[{style}m{text}\x1b[0m"
    return text


def if_read(content: RenderableType, stream: str) -> None:
    """Print to a stream; ignore failures."""
    try:
        _write(content, getattr(sys, stream))
    except OSError:
        _drop(stream)


def plain(content: RenderableType) -> str:
    """Return the content as text for a file.

    A str is unchanged; Rich writes other content in lines of at most 100 characters.
    """
    return content if isinstance(content, str) else _render(content, io.StringIO())


def _write(content: RenderableType | bytes, stream: TextIO) -> None:
    """Write text and bytes unchanged; let Rich write other content.

    On a terminal, lines are as wide as the terminal. In a pipe or file, lines have at most 100 characters and no
    trailing blanks.
    """
    if isinstance(content, bytes):
        stream.buffer.write(content)
    else:
        text = content if isinstance(content, str) else _render(content, stream)
        size = len(text) + 1 if starter is None else _PIECE
        for begin in range(0, len(text), size):
            _wait_for_room(1 if stream is sys.stdout else 2)
            stream.write(text[begin : begin + size])
            stream.flush()
    stream.flush()


def _wait_for_room(descriptor: int) -> None:
    """Wait until a stream is ready for writing.

    If a signal arrives first, drop the output of the stream: nobody reads it, and the write would never return.
    """
    while starter is not None and not has_room(descriptor, _PAUSE_MS):
        if starter.received is not None:
            drop_unread()


def _render(content: RenderableType, stream: TextIO) -> str:
    from rich.console import Console

    terminal = stream.isatty()
    width = None if terminal else PLAIN_WIDTH
    console = Console(file=stream, width=width, highlight=False, color_system="auto" if terminal else None)
    with console.capture() as captured:
        console.print(content)
    if terminal:
        return captured.get()
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def drop_unread() -> None:
    """Drop the output of standard streams that are not ready for writing.

    Nobody reads these streams any more, and Python would wait for a reader at exit.
    """
    for descriptor in (1, 2):
        with suppress(OSError):
            if not select.select([], [descriptor], [], 0)[1]:
                os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def _drop(name: str) -> None:
    """Drop the unwritten text of a standard stream.

    Otherwise Python would write the text again at exit, fail, and print an error.
    """
    nowhere = _nowhere()
    with suppress(OSError, ValueError):  # a stream without a descriptor
        os.dup2(nowhere.fileno(), getattr(sys, name).fileno())
    setattr(sys, name, nowhere)


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")
