"""The view by itself, on the full screen and with keys: draws a source until it ends or the user quits."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.segment import SegmentLines

from nncftools.live.figures import Machine, ViewSettings, after, status_line
from nncftools.live.follower import Follower, Replay
from nncftools.live.shared_terminal import FRAME_S, STATUS_S, Terminal, can_draw
from nncftools.render.terminal_plot import chart_problem

if TYPE_CHECKING:
    from rich.segment import Segment

_STEP_S = 0.5
_GONE = b"\x04"
QUIT = ("q", "Q", "\x03", _GONE.decode())
_ARROWS = {b"\x1b[A": "k", b"\x1b[B": "j", b"\x1b[C": ">", b"\x1b[D": "<", b"\x1b[5~": "K", b"\x1b[6~": "J"}
"""The keys for arrows, page up and page down."""
_WAIT_S = 0.1
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
        """Write to the terminal ``output``; keys come from /dev/tty, if it can be opened.

        The watchdog writes ``leave``.
        """
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
        self.restore()
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

    def restore(self) -> None:
        """Set the terminal's modes as they were."""
        self._set_modes(self._modes)

    def _set_modes(self, modes: list[Any] | None) -> None:
        import termios

        if modes is not None:
            with contextlib.suppress(OSError, termios.error):
                termios.tcsetattr(self._keys, termios.TCSADRAIN, modes)

    def read(self, timeout_s: float) -> bytes:
        """Return the bytes that the terminal sends within this time; Ctrl-D when the keyboard is gone."""
        if not select.select([self._keys] if self._keys >= 0 else [], [], [], timeout_s)[0]:
            return b""
        with contextlib.suppress(OSError):
            return os.read(self._keys, 64) or _GONE
        return _GONE

    def pressed(self, timeout_s: float) -> str:
        """Return the keys that are pressed within this time, or nothing; Ctrl-D when the keyboard is gone."""
        data = self.read(timeout_s)
        is_sequence = data.startswith(b"\x1b") and len(data) > 1
        return _ARROWS.get(data.replace(b"O", b"["), "") if is_sequence else data.decode(errors="ignore")


_LOCAL_MODES = 3


class SharedKeyboard(Keyboard):
    """The keyboard of a terminal that a command shares, which still echoes.

    A command that asks for a password switches the echo off, and so is noticed.
    """

    @property
    def works(self) -> bool:
        """Whether there is a keyboard."""
        return self._modes is not None

    def _is_in_front(self) -> bool:
        """Return whether keys are for this job, not for another one or the shell."""
        with contextlib.suppress(OSError):
            return os.tcgetpgrp(self._keys) == os.getpgrp()
        return False

    def take_over(self) -> None:
        """Have keys arrive one by one."""
        import termios

        if self._modes is not None and self._is_in_front():
            modes = list(self._modes)
            modes[_LOCAL_MODES] &= ~termios.ICANON
            self._set_modes(modes)

    def give_way(self) -> None:
        """Have the terminal edit lines again, unless the command has set other modes than the echo."""
        import termios

        with contextlib.suppress(OSError, termios.error):
            modes = termios.tcgetattr(self._keys)
            changes = modes[_LOCAL_MODES] ^ self._modes[_LOCAL_MODES] if self._modes is not None else 0
            if self._is_in_front() and not changes & ~(termios.ECHO | termios.ICANON):
                modes[_LOCAL_MODES] |= termios.ICANON
                self._set_modes(modes)

    def read(self, timeout_s: float) -> bytes:
        """Return the bytes that the terminal sends within this time; none for a job in the background."""
        if self._is_in_front():
            return super().read(timeout_s)
        time.sleep(timeout_s)
        return b""


class FullScreen(Keyboard):
    """The alternate screen, as rich's Live draws it, and the keyboard."""

    def __init__(self, output: int) -> None:
        """Draw on the terminal ``output``, which is standard output."""
        from rich.live import Live

        super().__init__(output, _LEAVE)
        self._console = Console(file=sys.stdout, force_terminal=True, legacy_windows=False)
        self._live = Live(
            console=self._console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        self._handlers: dict[int, Any] = {}
        self._is_to_stop = False

    def __enter__(self) -> FullScreen:
        """Take over the terminal. Until the signals have handlers, the watchdog restores it."""
        super().__enter__()
        self._live.start()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._handlers[number] = signal.signal(number, _end)
        self._handlers[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, self._ask_to_stop)
        return self

    def __exit__(self, *_: object) -> None:
        for number in self._handlers:  # no signal may keep the terminal from being restored now
            signal.signal(number, signal.SIG_IGN)
        with contextlib.suppress(OSError):  # the terminal is gone
            self._live.stop()
        super().__exit__()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _ask_to_stop(self, _number: int, _frame: object) -> None:
        self._is_to_stop = True

    def paint(self, rows: list[list[Segment]]) -> None:
        """Show rows from the top."""
        with contextlib.suppress(OSError):  # the terminal is gone
            self._console.size = self.size()
            self._live.update(SegmentLines(rows, new_lines=True), refresh=True)

    def pressed(self, timeout_s: float) -> str:
        """Return the keys that are pressed within this time, or nothing; before, stop the job if this was asked for."""
        if self._is_to_stop:
            self._is_to_stop = False
            self._live.stop()
            self.restore()
            os.kill(os.getpid(), signal.SIGSTOP)
            self.take_over()
            self._live.start()
        return super().pressed(min(timeout_s, _WAIT_S))


def _end(number: int, _frame: object) -> None:
    raise Ended(number)


def present(
    source: Follower | Replay, settings: ViewSettings, here: Machine, put: Callable[[str], None], *, stays: bool
) -> bool:
    """Show a source on standard output; as lines where that is no terminal, or where no chart can be drawn.

    Return False if the user quit before the source ended. Raises Ended for a signal.
    """
    output = sys.stdout.fileno()
    if can_draw(output):
        problem = chart_problem()
        if not problem:
            return show(source, settings, here, output, stays=stays)
        put(f"{problem}\n")
    print_status(source, settings, here, put)
    return True


def show(source: Follower | Replay, settings: ViewSettings, here: Machine, output: int, *, stays: bool) -> bool:
    """Draw on a terminal until the source ends; with ``stays``, then wait for the user to quit.

    Return False if the user quit before the source ended. Raises Ended for a signal.
    """
    from nncftools.live.layout import Drawing

    settings = replace(settings, keys=True, moves=isinstance(source, Replay))
    drawing = Drawing(here)
    with FullScreen(output) as screen:
        before_s = time.monotonic()
        next_s = 0.0
        more = True
        while True:
            now_s = time.monotonic()
            if now_s >= next_s:
                if more and not settings.paused:
                    more = source.step(now_s - before_s)
                before_s, next_s = now_s, now_s + FRAME_S
                screen.paint(drawing.rows(source.run, settings, *screen.size()))
            if not more and not stays:
                return True
            for key in screen.pressed(max(0.0, next_s - time.monotonic())):
                if key in QUIT:
                    return not more
                if isinstance(source, Replay) and source.move(key):
                    more = True
                settings = after(settings, key, len(source.run.processes))
                next_s = 0.0


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
