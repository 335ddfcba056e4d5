"""Printing: Rich output on a terminal, plain text without padding elsewhere."""

from __future__ import annotations

import codecs
import contextlib
import errno
import io
import logging
import os
import pathlib
import select
import shutil
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TextIO

from nncftools.errors import NncfToolsError
from nncftools.files import has_room
from nncftools.units import folds, printable, shortened

if TYPE_CHECKING:
    from rich.console import RenderableType

    from nncftools.sampler.client import Starter

PLAIN_WIDTH = 100
WIDEST_HELP = 120
"""Longer lines of help are hard to read on a wider terminal."""
OUT, ERR = "stdout", "stderr"
_ALIKE = "nncftools.alike"
_IN_ASCII = {"…": "...", "×": "x", "·": ".", "›": ">", "→": "->", "≤": "<=", "≥": ">=", "µ": "u"}
_IN_ASCII |= dict.fromkeys("–—−", "-")
"""Signs of our texts, for an encoding that lacks them."""
_BOLD, RED = "1", "1;31"
_PIECE = 1000
"""Characters that are written at once: a pipe that can be written to takes 4,096 bytes (PIPE_BUF)."""
_PAUSE_MS = 20
starter: Starter | None = None
"""Who takes signals that ask for the end, if they do not end this process."""


def prepare() -> None:
    """Make standard output and error accept any character, even if they are closed or ASCII only.

    What libraries log is not printed, such as Matplotlib's advice on folders that it cannot write: it would stand in
    the middle of a summary.
    """
    codecs.register_error(_ALIKE, _alike)
    # A stream that cannot be written keeps the place of a closed one: no file may take its number.
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")
    sys.stderr = sys.stderr or _nowhere()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ALIKE)
    logging.getLogger().addHandler(logging.NullHandler())


def _alike(error: UnicodeError) -> tuple[str | bytes, int]:
    """Replace one character that cannot be encoded by what looks like it, or by its escape sequence."""
    assert isinstance(error, UnicodeEncodeError)
    character = error.object[error.start]
    shown = _IN_ASCII.get(character) or character.encode("ascii", "backslashreplace").decode("ascii")
    return shown, error.start + 1


def to_stdout(content: RenderableType | bytes) -> None:
    """Print to standard output. Raises BrokenPipeError if its reader is gone, NncfToolsError for other failures."""
    try:
        _write(content, sys.stdout)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise lost_output(error) from error


def lost_output(error: OSError) -> NncfToolsError:
    """Return the error of a standard output that cannot be written, and write nothing more to it."""
    _drop(OUT)
    why = "is closed" if error.errno == errno.EBADF else f"cannot be written: {error.strerror}"
    return NncfToolsError(f"standard output {why}")


def to_stderr(content: RenderableType) -> None:
    """Print to standard error; a failure is ignored, because the work itself is done."""
    if_read(content, ERR)


def error(text: str, lines: Sequence[str] = ()) -> None:
    """Print an error to standard error: in one line, or as ``lines`` if there are any."""
    first, *more = lines or (text,)
    message(first, "error: ", RED)
    for line in more:
        to_stderr(f"{printable(line)}\n")


def message(text: str, kind: str = "", style: str = "") -> None:
    """Print what the user should know, in one line, to standard error; ``kind`` goes before it."""
    said, name = _in_lines(f"nncf-tools: {kind}{printable(' '.join(text.split()))}"), styled("nncf-tools:", ERR)
    shown = f"{styled(kind.strip(), ERR, style)} " if style else kind
    to_stderr(f"{name} {shown}{said.removeprefix(f'nncf-tools: {kind}')}\n")


def line(text: str, style: str = "") -> None:
    """Print a line on what is done to standard error, without a name before it."""
    shown = _in_lines(printable(shortened(text, _PIECE)))
    to_stderr(f"{styled(shown, ERR, style) if style else shown}\n")


def open_page(page: pathlib.Path) -> None:
    """Open a page in the user's browser; without one, say where the page is."""
    import webbrowser

    if not webbrowser.open(page.absolute().as_uri()):
        message(f"no browser could be opened; the page is {page}")


def _in_lines(text: str) -> str:
    """Return a text for standard error, on a terminal in lines that break between words."""
    width = shutil.get_terminal_size((0, 1)).columns if sys.stderr.isatty() else 0
    places = [0, *(folds(text, width) if width else ()), len(text)]
    return "\n".join(text[begin:end].rstrip() for begin, end in pairwise(places))


def styled(text: str, stream: str, style: str = _BOLD) -> str:
    """Return text in bold letters, or in ``RED``, where a stream, ``OUT`` or ``ERR``, is a terminal with colours."""
    to = getattr(sys, stream)
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") in {None, "", "dumb"} or not to.isatty()
    return text if is_plain else f"\x1b[{style}m{text}\x1b[0m"


def if_read(content: RenderableType, stream: str) -> None:
    """Print to a stream; a failure is ignored."""
    try:
        _write(content, getattr(sys, stream))
    except OSError:
        _drop(stream)


def plain(content: RenderableType) -> str:
    """Return the text for a file: a str unchanged, anything else by Rich in lines of at most 100 characters."""
    return content if isinstance(content, str) else _rendered(content, io.StringIO())


def _write(content: RenderableType | bytes, stream: TextIO) -> None:
    """Write text and bytes unchanged, and render anything else with Rich.

    Lines on a terminal have its width; lines in a pipe or file have at most 100 characters and no trailing blanks.
    """
    if isinstance(content, bytes):
        stream.buffer.write(content)
    else:
        text = content if isinstance(content, str) else _rendered(content, stream)
        size = len(text) + 1 if starter is None else _PIECE
        for begin in range(0, len(text), size):
            _wait_for_room(1 if stream is sys.stdout else 2)
            stream.write(text[begin : begin + size])
            stream.flush()
    stream.flush()


def _wait_for_room(descriptor: int) -> None:
    """Wait until a stream is read, or give it up after a signal: Python would write again after it, and never end."""
    while starter is not None and not has_room(descriptor, _PAUSE_MS):
        if starter.received is not None:
            drop_unread()


def _rendered(content: RenderableType, stream: TextIO) -> str:
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
    """Give up a standard stream that has no room: its reader reads no more, and Python would wait for it at exit."""
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            if not select.select([], [descriptor], [], 0)[1]:
                os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def _drop(name: str) -> None:
    """Drop the unwritten text of a standard stream: Python would write it again at exit, and print an error."""
    nowhere = _nowhere()
    with contextlib.suppress(OSError, ValueError):  # a stream without a descriptor
        os.dup2(nowhere.fileno(), getattr(sys, name).fileno())
    setattr(sys, name, nowhere)


def _nowhere() -> TextIO:
    return pathlib.Path(os.devnull).open("w", encoding="utf-8")
