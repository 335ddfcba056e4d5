"""The command's output and the live view during a recording.

A relay reads the command's output, writes it to our output, and passes each line to a callback. If our output is a
terminal, the command gets another terminal in raw mode. Raw mode does not change bytes. Input, controlling terminal and
process group of the command stay the same.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nncftools.cli import screen
from nncftools.cli.destination import writing
from nncftools.errors import NncfToolsError, UsageError, memory_shortage
from nncftools.files import above_standard, open_output, write_all
from nncftools.render.view import View
from nncftools.sampler.client import Interrupted, Starter, block_signals

if TYPE_CHECKING:
    from nncftools.live.figures import ViewSettings
    from nncftools.live.viewer import LiveView


_CHUNK = 1 << 16
_LONGEST_LINE = 1 << 16
_KEYS_S = 0.2
_LINE_END = re.compile(rb"[\r\n]")
_ESCAPES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
_STANDARD = (1, 2)


@dataclass
class Relay:
    """Copies the command's output and error to ours until the last process has closed them, like ``tee``."""

    on_line: Callable[[str], None] | None = None
    """Callback for each line, without colours. Threads of the relay call it. Each state of a progress bar is a line."""
    write: Callable[[int, bytes], None] = write_all
    """Function that writes data; the arguments are our descriptor and the bytes."""
    only_terminals: bool = False
    """Whether only outputs that are terminals are relayed."""
    only_pipes: bool = False
    """Whether the command gets pipes instead of terminals."""

    def __post_init__(self) -> None:
        """Start without pipes and terminals."""
        self._terminals: dict[str, tuple[int, int]] = {}
        """The command's terminals: ``{name of the terminal: (descriptor from which we read, descriptor of our
        output)}``.
        """
        self.ends: list[tuple[int, int]] = []
        """``(descriptor from which we read, descriptor of our output)`` for each pipe or terminal of the command."""
        self._keys = threading.Thread(target=self._pass_keys, daemon=True)
        self._has_ended = threading.Event()
        self._inner: dict[int, int] = {}
        """``{1 or 2: descriptor to which the command writes}``. The key 1 stands for the command's standard output, and
        2 for the standard error. The descriptor belongs to a pipe or a terminal that the relay made.
        """
        self._threads: list[threading.Thread] = []
        self._release: Callable[[int], object] = int

    @property
    def outputs(self) -> tuple[int | None, int | None]:
        """Descriptors for the command's standard output and error; None for an output that is not relayed."""
        return self._inner.get(1), self._inner.get(2)

    def __enter__(self) -> Relay:
        """Make the pipes or terminals, and start to read from them. Raises OSError, NncfToolsError."""
        opened = [descriptor for descriptor in _STANDARD if _is_given(descriptor)]
        if self.only_terminals:
            opened = list(filter(os.isatty, opened))
        same = len(opened) == len(_STANDARD) and os.path.sameopenfile(*opened)
        for descriptor in opened:
            if same and self._inner:
                self._inner[descriptor] = self._inner[1]
                continue
            is_terminal = os.isatty(descriptor) and not self.only_pipes
            ends = _open_terminal(descriptor) if is_terminal else os.pipe()
            outer, inner = map(above_standard, ends)
            name = os.ttyname(inner) if is_terminal else ""
            if name:
                self._terminals[name] = outer, descriptor
            self._inner[descriptor] = inner
            self.ends.append((outer, descriptor))
            arguments = (outer, descriptor, name)
            self._threads.append(threading.Thread(target=self._pass_on, args=arguments, daemon=True))
        try:
            with block_signals():  # only the main thread may handle signals
                for thread in self._threads:
                    thread.start()
        except RuntimeError as error:
            raise NncfToolsError(f"the command's output cannot be passed on: {error}") from error
        return self

    def start(self, release: Callable[[int], object]) -> None:
        """Close our copies of the descriptors to which the command writes.

        Then the relay ends when the last process closes the output. ``release`` is called with each descriptor from
        which we read, after this descriptor is closed.
        """
        self._release = release
        self._close_inner()
        if self._terminals:
            with block_signals():
                self._keys.start()

    def _pass_keys(self) -> None:
        """Pass keys to programs that read from a terminal of the relay, such as ``less``."""
        from nncftools.live.shared_terminal import descendants, file_read

        while not self._has_ended.wait(_KEYS_S):
            for outer, ours in list(self._terminals.values()):
                _fit(outer, ours)
            with suppress(OSError):
                readers = ((pid, self._terminals.get(file_read(pid))) for pid in descendants())
                for pid, ends in readers:
                    if ends is not None:
                        self._pass_keys_to(pid, *ends)
                        break

    def _pass_keys_to(self, pid: int, outer: int, ours: int) -> None:
        """Pass keys to a program's terminal until the program ends, or we are in the background. Raises OSError."""
        from nncftools.live.viewer import Keyboard

        if os.tcgetpgrp(ours) != os.getpgrp():  # another job is in the foreground, and gets the keys
            return
        with Keyboard(ours) as keyboard:
            while Path(f"/proc/{pid}").exists() and os.tcgetpgrp(ours) == os.getpgrp():
                _fit(outer, ours)
                keyboard.take_over()
                os.write(outer, keyboard.read(_KEYS_S))

    def _close_inner(self) -> None:
        for inner in set(self._inner.values()):
            os.close(inner)
        self._inner = {}

    def __exit__(self, *_: object) -> None:
        self._close_inner()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        self._has_ended.set()
        if self._keys.is_alive():
            self._keys.join()

    def _pass_on(self, outer: int, descriptor: int, name: str) -> None:
        rest = b""
        # EIO: all processes closed the terminal; EPIPE: our reader has ended, so the command should get EPIPE, too
        with suppress(OSError):
            while chunk := os.read(outer, _CHUNK):
                self.write(descriptor, chunk)
                if self.on_line is None:
                    continue
                *lines, rest = _LINE_END.split(rest + chunk)
                for line in lines:
                    self._pass_line(line)
                rest = rest[-_LONGEST_LINE:]
        self._pass_line(rest)
        self._terminals.pop(name, None)
        os.close(outer)
        self._release(outer)

    def _pass_line(self, line: bytes) -> None:
        text = _ESCAPES.sub(b"", line).decode(errors="replace").strip()
        if text and self.on_line is not None:
            try:
                self.on_line(text)
            except Exception:  # noqa: BLE001 — a failing callback must not stop the command's output
                self.on_line = None


def _is_given(descriptor: int) -> bool:
    """Return whether our parent process passed on this descriptor.

    Only such descriptors are inheritable: Python makes the descriptors that it opens not inheritable.
    """
    try:
        return os.get_inheritable(descriptor)
    except OSError:
        return False


def _open_terminal(like: int) -> tuple[int, int]:
    """Open a pseudo-terminal in raw mode; return two descriptors: our side, and the command's side.

    The number of columns and lines is copied from the terminal ``like``, a descriptor.
    """
    import tty

    outer, inner = os.openpty()
    tty.setraw(inner)
    _fit(inner, like)
    return outer, inner


def _fit(terminal: int, like: int) -> None:
    import fcntl
    import termios

    with suppress(OSError):
        size = fcntl.ioctl(like, termios.TIOCGWINSZ, bytes(8))
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)


_STANDARD_ERROR = 2


@dataclass
class OutputDisplay:
    """Shows the command's output during a recording: by a relay, in the live view, or in a file.

    The exit of the context waits until all processes have closed the command's output. A signal that ``starter``
    receives ends the wait.
    """

    view: View
    on_line: Callable[[str], None] | None
    """Callback for each line of the command's output."""
    starter: Starter
    live: bool
    """Whether the live view shows the run."""
    output: Path | int | None
    """File or descriptor for the command's output; None for our own output."""
    copies: bool = False
    """Whether output in a file is also written to our own output."""

    def __post_init__(self) -> None:
        """Start without a relay, a live view and an output file."""
        self._captured = -1
        self._is_broken = False
        self._relay: Relay | None = None
        self._live_view: LiveView | None = None
        self._stack = ExitStack()

    @property
    def outputs(self) -> tuple[int | None, int | None]:
        """Descriptors for the command's standard output and error; None if the command inherits ours."""
        if self._relay is not None:
            return self._relay.outputs
        return (None, None) if self._captured < 0 else (self._captured, self._captured)

    @property
    def relays(self) -> list[tuple[int, int]]:
        """``(source, target)`` for each relayed output of the command; both are descriptors."""
        if self._relay is None:
            return []
        if self._captured < 0:
            return self._relay.ends
        return [(source, self._captured) for source, _ in self._relay.ends]

    def __enter__(self) -> OutputDisplay:
        """Open the outputs.

        Raises UsageError if the file of ``--capture`` cannot be opened, OSError if a terminal cannot be opened, and
        NncfToolsError if there is too little memory for the live view.
        """
        with self._stack:
            self._open_capture()
            if self.live:
                from nncftools.live.viewer import LiveView

                try:
                    settings = make_settings(self.view, sys.stderr.encoding)
                except MemoryError as error:
                    raise NncfToolsError(f"option --live: {memory_shortage(error)}") from error
                live_view = LiveView(_STANDARD_ERROR, settings, alone=self._captured >= 0)
                self._live_view = self._stack.enter_context(live_view)
            draws = self._live_view is not None and self._live_view.terminal is not None and self._captured < 0
            copies = self.copies and self._captured >= 0
            if self.on_line is not None or draws or copies:
                relay = Relay(
                    self.on_line,
                    self._put if draws or self._captured >= 0 else write_all,
                    only_terminals=self.on_line is None and not copies,
                    only_pipes=self._captured >= 0 and not copies,
                )
                self._relay = self._stack.enter_context(relay)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *details: object) -> None:
        # a failing display must not change the command's exit status
        with suppress(Exception, Interrupted), self.starter.interruptible():
            self._stack.close()

    def begin(self, journal: Path, descriptor: int, release: Callable[[int], object]) -> None:
        """Start to relay the output and to draw the live view, after the command has started.

        ``descriptor`` is the open journal. ``release`` is called with each source in ``relays`` after the source is
        closed.
        """
        if self._relay is not None:
            self._relay.start(release)
        if self._live_view is not None:
            with block_signals():
                self._live_view.follow(journal, descriptor)

    def _open_capture(self) -> None:
        if isinstance(self.output, int):
            self._captured = self.output
        elif self.output is not None:
            with writing("--capture", self.output, UsageError):
                self._captured = open_output(self.output)
            self._stack.callback(os.close, self._captured)

    def _put(self, descriptor: int, data: bytes) -> None:
        terminal = None if self._live_view is None else self._live_view.terminal
        if self._captured < 0 and terminal is not None and os.isatty(descriptor) and not self._is_broken:
            try:
                terminal.take(data)
            except Exception:  # noqa: BLE001 — a failing view must not stop the command's output
                self._is_broken = True
            else:
                return
        if self._captured < 0 or self.copies:
            write_all(descriptor, data)
        if self._captured >= 0:
            try:
                write_all(self._captured, data)
            except OSError as error:  # the disk may be full: further output goes to our output
                self._captured = -1
                screen.message(f"option --capture: the rest of {str(self.output)!r} is missing: {error.strerror}")


def make_settings(view: View, encoding: str | None, state: str = "recording") -> ViewSettings:
    """Return settings for the live view. The characters depend on ``encoding``, and the colours on the terminal."""
    from rich.console import Console

    from nncftools.live.figures import ViewSettings
    from nncftools.render.terminal_plot import colours_of

    is_unicode = (encoding or "ascii").lower().replace("-", "").startswith("utf")
    return ViewSettings(
        metrics=view.metrics,
        unit=view.unit,
        unicode=is_unicode and os.environ.get("TERM") != "linux",  # the kernel's own console has no Braille
        colours=colours_of(Console(force_terminal=True, legacy_windows=False)),
        state=state,
    )
