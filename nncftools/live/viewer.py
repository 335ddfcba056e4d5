"""The view by itself, on the full screen and with keys: draws a source until it ends or the user quits."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from nncftools.live.figures import Machine, ViewSettings, after, status_line
from nncftools.live.follower import Follower, Replay
from nncftools.live.live_view import FRAME_S, STATUS_S
from nncftools.live.shared_terminal import Terminal

_STEP_S = 0.5
_GONE = b"\x04"
_QUIT = ("q", "Q", "\x03", _GONE.decode())
_ARROWS = {b"\x1b[A": "k", b"\x1b[B": "j", b"\x1b[5~": "K", b"\x1b[6~": "J"}
"""The keys for arrows, page up and page down."""
_LEAVE = "\x1b[0m\x1b[?25h\x1b[?1049l"
_WATCHDOG = """
import ast, os, signal, sys, termios
for name in ("SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGTTOU", "SIGTSTP"):
    signal.signal(getattr(signal, name), signal.SIG_IGN)
if os.read(0, 5) != b"clean":
    os.write(1, sys.argv[1].encode())
    modes = ast.literal_eval(sys.argv[2])
    if modes:
        termios.tcsetattr(os.open("/dev/tty", os.O_RDWR), termios.TCSADRAIN, modes)
"""


class Ended(BaseException):
    """A signal asked for the end; ``status`` is the exit status to report it with."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number


class Keyboard(Terminal):
    """A terminal whose keys arrive one by one, without echo.

    A small watchdog process waits for the end of this one, and restores the terminal if this one was killed.
    """

    def __init__(self, output: int, leave: str = "") -> None:
        """Write to the terminal ``output``, at the end ``leave``; keys come from /dev/tty, if it can be opened."""
        super().__init__(output)
        self._leave = leave
        self._keys = -1
        self._modes: list[Any] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Keyboard:
        import termios

        with contextlib.suppress(OSError, termios.error):
            self._keys = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
            self._modes = termios.tcgetattr(self._keys)
        words = [sys.executable, "-I", "-S", "-c", _WATCHDOG, self._leave, repr(self._modes)]
        with contextlib.suppress(OSError):
            self._watchdog = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=self._descriptor)
        self.take_over()
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()
        if self._watchdog is not None:
            with contextlib.suppress(OSError):
                self._watchdog.communicate(b"clean")
        if self._keys >= 0:
            os.close(self._keys)
            self._keys = -1

    def take_over(self) -> None:
        """Have keys arrive one by one, also after a shell has set the terminal for itself."""
        import termios
        import tty

        if self._modes is not None:
            tty.setcbreak(self._keys, termios.TCSADRAIN)

    def _restore(self) -> None:
        import termios

        self._write(self._leave)
        if self._modes is not None:
            with contextlib.suppress(OSError, termios.error):
                termios.tcsetattr(self._keys, termios.TCSADRAIN, self._modes)

    def read(self, timeout_s: float) -> bytes:
        """Return what is typed within this time, as the terminal sends it; Ctrl-D when the keyboard is gone."""
        if not select.select([self._keys] if self._keys >= 0 else [], [], [], timeout_s)[0]:
            return b""
        with contextlib.suppress(OSError):
            return os.read(self._keys, 64) or _GONE
        return _GONE


class FullScreen(Keyboard):
    """The alternate screen without a cursor, and the keyboard."""

    def __init__(self, output: int) -> None:
        """Draw on the terminal ``output``."""
        super().__init__(output, _LEAVE)
        self._handlers: dict[int, Any] = {}
        self._painted: list[str] = []

    def __enter__(self) -> FullScreen:
        try:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._handlers[number] = signal.signal(number, _end)
            self._handlers[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, self._be_stopped)
            super().__enter__()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for number in self._handlers:  # no signal may keep the terminal from being restored now
            signal.signal(number, signal.SIG_IGN)
        super().__exit__()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _be_stopped(self, _number: int, _frame: object) -> None:
        self._restore()
        os.kill(os.getpid(), signal.SIGSTOP)
        self.take_over()

    def take_over(self) -> None:
        """Show the alternate screen, cleared, without a cursor."""
        super().take_over()
        self.repaint()
        self._write("\x1b[?1049h\x1b[?25l\x1b[H\x1b[2J")

    def paint(self, lines: Sequence[str]) -> None:
        """Show lines from the top; unchanged lines are not written again."""
        clear = "" if len(lines) == len(self._painted) else "\x1b[2J"
        changed = [
            f"\x1b[{row};1H\x1b[2K{line}"
            for row, line in enumerate(lines, start=1)
            if clear or line != self._painted[row - 1]
        ]
        self._write(clear + "".join(changed))
        self._painted = list(lines)

    def repaint(self) -> None:
        """Make the next ``paint`` write all lines again."""
        self._painted = []

    def keys(self, timeout_s: float) -> str:
        """Return the keys that are pressed within this time, or nothing; Ctrl-D when the keyboard is gone."""
        data = self.read(timeout_s)
        is_sequence = data.startswith(b"\x1b") and len(data) > 1
        return _ARROWS.get(data.replace(b"O", b"["), "") if is_sequence else data.decode(errors="ignore")


def _end(number: int, _frame: object) -> None:
    raise Ended(number)


def show(source: Follower | Replay, settings: ViewSettings, here: Machine, output: int, *, stays: bool) -> bool:
    """Draw on a terminal until the source ends; with ``stays``, then wait for the user to quit.

    Return False if the user quit before the source ended. Raises Ended for a signal.
    """
    from nncftools.live.layout import Drawing

    settings = replace(settings, keys=True)
    drawing = Drawing(here)
    with FullScreen(output) as screen:
        size = screen.size()
        before_s = time.monotonic()
        next_s = 0.0
        more = True
        while True:
            now_s = time.monotonic()
            if now_s >= next_s:
                if more and not settings.paused:
                    more = source.step(now_s - before_s)
                before_s, next_s = now_s, now_s + FRAME_S
                if size != (size := screen.size()):
                    screen.repaint()
                screen.paint(drawing.frame(source.run, settings, *size))
            if not more and not stays:
                return True
            for key in (keys := screen.keys(max(0.0, next_s - time.monotonic()))):
                if key in _QUIT:
                    return not more
                settings = after(settings, key)
                settings = replace(settings, first=min(settings.first, max(0, len(source.run.processes) - 1)))
            if keys:
                screen.paint(drawing.frame(source.run, settings, *size))


def print_status(source: Follower | Replay, settings: ViewSettings, here: Machine, put: Callable[[str], None]) -> None:
    """Print a plain status line every few seconds until the source ends."""
    before_s = time.monotonic()
    next_s = before_s + STATUS_S
    more = True
    while more:
        now_s = time.monotonic()
        more = source.step(now_s - before_s)
        before_s = now_s
        if now_s >= next_s or not more:
            next_s = now_s + STATUS_S
            put(f"{status_line(source.run, settings, here)}\n")
        if more:
            time.sleep(_STEP_S)
