"""The command's output on its way to ours, line by line to somebody who reads along.

Where our output is a terminal, the command's is one too (of its own, raw: bytes pass as they are); input, the
controlling terminal and the process group stay the command's own.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from typing import TYPE_CHECKING, Self

from nncftools.errors import NncfToolsError
from nncftools.files import above_standard, write_all
from nncftools.sampler.starter import held_back

if TYPE_CHECKING:
    from collections.abc import Callable

_CHUNK = 1 << 16
_LONGEST_LINE = 1 << 16
_LINE_END = re.compile(rb"[\r\n]")
_ESCAPES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
_STANDARD = (1, 2)


class Relay:
    """Passes standard output and error on until their last writer has closed them, as a pipe to ``tee`` would."""

    def __init__(
        self,
        on_line: Callable[[str], None] | None = None,
        put: Callable[[int, bytes], None] | None = None,
        *,
        only_terminals: bool = False,
        only_pipes: bool = False,
    ) -> None:
        """Have ``on_line`` called, in threads, with each line without colours; a progress bar's states are lines, too.

        Output goes to ``put``, with the descriptor of ours that it was meant for, or else there. With
        ``only_terminals`` what is none stays the command's own; with ``only_pipes`` the command finds no terminal.
        """
        self._on_line = on_line
        self._put = put or write_all
        self._only_terminals = only_terminals
        self._only_pipes = only_pipes
        self._terminals: dict[int, int] = {}
        """The outer ends of those made, and the descriptors that they stand for."""
        self.ends: list[tuple[int, int]] = []
        """Where output arrives, and the descriptor of ours that it is meant for."""
        self._inner: dict[int, int] = {}
        """By descriptor of ours: what the command writes to in its place."""
        self._threads: list[threading.Thread] = []
        self._released: Callable[[int], object] = int

    @property
    def outputs(self) -> tuple[int | None, int | None]:
        """What the command is to have as standard output and error; None for one that is closed."""
        return self._inner.get(1), self._inner.get(2)

    def __enter__(self) -> Self:
        """Make the pipes or terminals, and begin to wait for output. Raises OSError, NncfToolsError."""
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
            with held_back():  # ours is the one thread that wakes for a signal
                for thread in self._threads:
                    thread.start()
        except RuntimeError as error:
            raise NncfToolsError(f"the command's output cannot be passed on: {error}") from error
        return self

    def resize(self) -> None:
        """Give the command's terminals the size that ours have now."""
        for outer, descriptor in list(self._terminals.items()):
            _fit(outer, descriptor)

    def start(self, released: Callable[[int], object]) -> None:
        """Close the command's ends, once it has them, so that the last writer's close is the end.

        ``released`` is called with each outer end that was closed.
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
        # EIO: the last writer has closed; EPIPE: nobody reads ours, nor need they write
        with contextlib.suppress(OSError):
            while chunk := os.read(outer, _CHUNK):
                self._put(descriptor, chunk)
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
            except Exception:  # noqa: BLE001 — whoever reads along must not stop the command's output
                self._on_line = None


def _is_given(descriptor: int) -> bool:
    """Return whether we were started with a descriptor; what was opened since is not inheritable."""
    try:
        return os.get_inheritable(descriptor)
    except OSError:
        return False


def _terminal(like: int) -> tuple[int, int]:
    """Return both ends of a new terminal of the size of an old one, which changes nothing in what passes."""
    import tty

    outer, inner = os.openpty()
    tty.setraw(inner)
    _fit(inner, like)
    return outer, inner


def _fit(terminal: int, like: int) -> None:
    import termios

    with contextlib.suppress(OSError, termios.error):
        termios.tcsetwinsize(terminal, termios.tcgetwinsize(like))
