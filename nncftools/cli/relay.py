"""Passes the command's output on to ours, and each line to a callback.

If our output is a terminal, the command gets a raw terminal of its own, which passes bytes unchanged. Input,
controlling terminal and process group are not affected.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from typing import TYPE_CHECKING

from nncftools.errors import NncfToolsError
from nncftools.files import above_standard, write_all
from nncftools.sampler.starter import held_back

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

_CHUNK = 1 << 16
_LONGEST_LINE = 1 << 16
_LINE_END = re.compile(rb"[\r\n]")
_ESCAPES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
_STANDARD = (1, 2)


class Relay:
    """Passes standard output and error on until their last writer closes them, like a pipe to ``tee``."""

    def __init__(
        self,
        on_line: Callable[[str], None] | None = None,
        write: Callable[[int, bytes], None] | None = None,
        *,
        only_terminals: bool = False,
        only_pipes: bool = False,
    ) -> None:
        """Call ``on_line``, in threads, with each line without colours; each state of a progress bar is a line.

        Output goes to ``write``, which gets our descriptor and the data; by default it is written to that descriptor.
        ``only_terminals`` relays no other outputs; with ``only_pipes`` the command gets no terminal.
        """
        self._on_line = on_line
        self._write = write or write_all
        self._only_terminals = only_terminals
        self._only_pipes = only_pipes
        self._terminals: dict[int, int] = {}
        """By outer end of a terminal: our descriptor."""
        self.ends: list[tuple[int, int]] = []
        """Pairs of the end where output arrives and our descriptor."""
        self._inner: dict[int, int] = {}
        """By our descriptor: the end that the command writes to."""
        self._threads: list[threading.Thread] = []
        self._released: Callable[[int], object] = int

    @property
    def outputs(self) -> tuple[int | None, int | None]:
        """The command's standard output and error; None if ours is closed."""
        return self._inner.get(1), self._inner.get(2)

    def __enter__(self) -> Self:
        """Make the pipes or terminals and start to read from them. Raises OSError, NncfToolsError."""
        opened = [descriptor for descriptor in _STANDARD if _is_given(descriptor)]
        if self._only_terminals:
            opened = list(filter(os.isatty, opened))
        same = len(opened) == len(_STANDARD) and os.path.sameopenfile(*opened)
        for descriptor in opened:
            if same and self._inner:
                self._inner[descriptor] = self._inner[1]
                continue
            is_terminal = os.isatty(descriptor) and not self._only_pipes
            outer, inner = map(above_standard, _terminal(descriptor) if is_terminal else os.pipe())
            if is_terminal:
                self._terminals[outer] = descriptor
            self._inner[descriptor] = inner
            self.ends.append((outer, descriptor))
            self._threads.append(threading.Thread(target=self._pass_on, args=(outer, descriptor), daemon=True))
        try:
            with held_back():  # only the main thread handles signals
                for thread in self._threads:
                    thread.start()
        except RuntimeError as error:
            raise NncfToolsError(f"the command's output cannot be passed on: {error}") from error
        return self

    def resize(self) -> None:
        """Set the command's terminals to the current size of ours."""
        for outer, descriptor in list(self._terminals.items()):
            _fit(outer, descriptor)

    def start(self, released: Callable[[int], object]) -> None:
        """Close our copies of the command's ends, so that output ends when its last writer closes it.

        ``released`` is called with each outer end that is closed.
        """
        self._released = released
        self._close_inner()

    def _close_inner(self) -> None:
        for inner in set(self._inner.values()):
            os.close(inner)
        self._inner = {}

    def __exit__(self, *_: object) -> None:
        self._close_inner()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def _pass_on(self, outer: int, descriptor: int) -> None:
        rest = b""
        # EIO: the last writer has closed; EPIPE: our reader is gone, so the command may get EPIPE, too
        with contextlib.suppress(OSError):
            while chunk := os.read(outer, _CHUNK):
                self._write(descriptor, chunk)
                if self._on_line is None:
                    continue
                *lines, rest = _LINE_END.split(rest + chunk)
                for line in lines:
                    self._pass_line(line)
                rest = rest[-_LONGEST_LINE:]
        self._pass_line(rest)
        self._terminals.pop(outer, None)
        os.close(outer)
        self._released(outer)

    def _pass_line(self, line: bytes) -> None:
        text = _ESCAPES.sub(b"", line).decode(errors="replace").strip()
        if text and self._on_line is not None:
            try:
                self._on_line(text)
            except Exception:  # noqa: BLE001 — a failing callback must not stop the command's output
                self._on_line = None


def _is_given(descriptor: int) -> bool:
    """Return whether we were started with this descriptor: descriptors opened later are not inheritable."""
    try:
        return os.get_inheritable(descriptor)
    except OSError:
        return False


def _terminal(like: int) -> tuple[int, int]:
    """Return both ends of a new raw terminal with the size of ``like``."""
    import tty

    outer, inner = os.openpty()
    tty.setraw(inner)
    _fit(inner, like)
    return outer, inner


def _fit(terminal: int, like: int) -> None:
    import fcntl
    import termios

    with contextlib.suppress(OSError):
        size = fcntl.ioctl(like, termios.TIOCGWINSZ, bytes(8))
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)
