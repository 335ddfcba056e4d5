"""Show a recording until the recording ends: on the full screen, below the output of the command, or as status lines.

The command line imports this module while the command starts, so numpy and rich are only imported when needed.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import platform
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from nncftools.live.shared_terminal import FRAME_S, STATUS_S, SharedTerminal, Terminal, TerminalReaders, can_draw

if TYPE_CHECKING:
    from rich.segment import Segment

    from nncftools.live.figures import Machine, ViewSettings
    from nncftools.live.follower import Follower, Replay
    from nncftools.live.layout import Drawing
    from nncftools.live.run import Run

_STEP_S = 0.5
_MOST_BYTES = 4096
"""The kernel keeps at most this many bytes of a terminal's input, so no key is cut."""
_GONE = b"\x04"
QUIT = ("q", "Q", "\x03", _GONE.decode())
_ARROWS = {
    "A": "k",
    "B": "j",
    "C": ">",
    "D": "<",
    "5~": "K",
    "6~": "J",
}
"""Maps the escape sequences of the arrow keys, Page Up and Page Down, without their beginning ``ESC [`` or ``ESC O``,
to the letters that this module uses for these keys.
"""
_SEQUENCE = re.compile(r"\x1b(?:[\[O]([0-?]*[@-~])|.)")
"""Matches a key that the terminal sends as several characters."""
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
    """A signal has asked this program to end; ``status`` is the exit status for the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number


class Keyboard(Terminal):
    """A terminal that lets each key be read at once, without echo.

    A small watchdog process waits for the end of this process. If this process was killed, the watchdog restores the
    terminal.
    """

    def __init__(self, output: int, leave: str = "") -> None:
        """Write to the terminal ``output``; read keys from /dev/tty if possible.

        If this process is killed, the watchdog writes ``leave`` to the terminal.
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
        words = [
            sys.executable,
            "-I",
            "-S",
            "-c",
            _WATCHDOG,
            self._leave,
            repr(self._modes),
        ]
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
        """Make the terminal deliver each key at once, not only after Enter.

        Call this at the start, and after a shell has changed the terminal's modes.
        """
        import termios
        import tty

        if self._modes is not None:
            tty.setcbreak(self._keys, termios.TCSADRAIN)

    def restore(self) -> None:
        """Restore the original modes of the terminal."""
        self._set_modes(self._modes)

    def _set_modes(self, modes: list[Any] | None) -> None:
        import termios

        if modes is not None:
            with contextlib.suppress(OSError, termios.error):
                termios.tcsetattr(self._keys, termios.TCSADRAIN, modes)

    def read(self, timeout_s: float) -> bytes:
        """Return the bytes from the keyboard, after at most ``timeout_s``; Ctrl-D if the terminal no longer exists."""
        keyboards = [self._keys] if self._keys >= 0 else []
        if not select.select(keyboards, [], [], timeout_s)[0]:
            return b""
        with contextlib.suppress(OSError):
            return os.read(self._keys, _MOST_BYTES) or _GONE
        return _GONE

    def pressed(self, timeout_s: float) -> str:
        """Return the keys that are pressed within ``timeout_s``; Ctrl-D if the terminal no longer exists."""
        text = self.read(timeout_s).decode(errors="ignore")
        return _SEQUENCE.sub(lambda match: _ARROWS.get(match[1], ""), text)


_LOCAL_MODES = 3


class SharedKeyboard(Keyboard):
    """The keyboard of a terminal that is shared with a command. The terminal still echoes keys.

    If the command asks for a password, the command switches the echo off. ``TerminalReaders`` notices this change.
    """

    @property
    def works(self) -> bool:
        """Whether keys can be read."""
        return self._modes is not None

    def _is_in_front(self) -> bool:
        """Return whether this job is in the foreground, so that keys go to this job."""
        with contextlib.suppress(OSError):
            return os.tcgetpgrp(self._keys) == os.getpgrp()
        return False

    def take_over(self) -> None:
        """Make the terminal deliver each key at once, if this job is in the foreground."""
        import termios

        if self._modes is not None and self._is_in_front():
            modes = list(self._modes)
            modes[_LOCAL_MODES] &= ~termios.ICANON
            self._set_modes(modes)

    def give_way(self) -> None:
        """Switch the terminal back to line-by-line input (canonical mode).

        Do nothing if the command has changed terminal modes other than canonical mode and echo.
        """
        import termios

        with contextlib.suppress(OSError, termios.error):
            modes = termios.tcgetattr(self._keys)
            before = modes if self._modes is None else self._modes
            changes = modes[_LOCAL_MODES] ^ before[_LOCAL_MODES]
            if self._is_in_front() and not changes & ~(termios.ECHO | termios.ICANON):
                modes[_LOCAL_MODES] |= termios.ICANON
                self._set_modes(modes)

    def read(self, timeout_s: float) -> bytes:
        """Return the bytes from the keyboard, after at most ``timeout_s``; nothing if this job is in the background."""
        if self._is_in_front():
            return super().read(timeout_s)
        time.sleep(timeout_s)
        return b""


class FullScreen(Keyboard):
    """The full screen: the alternate screen of the terminal, drawn by rich's Live, and the keyboard."""

    def __init__(self, output: int) -> None:
        """Draw on the terminal ``output``, which is standard output."""
        from rich.console import Console
        from rich.live import Live

        super().__init__(output, _LEAVE)
        self._console = Console(file=sys.stdout, force_terminal=True, legacy_windows=False)
        self._live = Live(
            console=self._console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._handlers: dict[int, Any] = {}
        self._is_to_stop = False
        self._is_drawing = False
        self._signal = 0

    def __enter__(self) -> FullScreen:
        """Take over the terminal, then install the signal handlers.

        If a signal kills this process before a handler is installed, the watchdog restores the terminal.
        """
        super().__enter__()
        self._live.start()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._handlers[number] = signal.signal(number, self._end)
        self._handlers[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, self._ask_to_stop)
        return self

    def __exit__(self, *_: object) -> None:
        for number in self._handlers:  # no signal may interrupt the restoring of the terminal
            signal.signal(number, signal.SIG_IGN)
        with contextlib.suppress(OSError):  # the terminal no longer exists
            self._live.stop()
        super().__exit__()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _ask_to_stop(self, _number: int, _frame: object) -> None:
        self._is_to_stop = True

    def _end(self, number: int, _frame: object) -> None:
        if not self._is_drawing:
            raise Ended(number)
        self._signal = number

    def draw(self, drawing: Drawing, run: Run, settings: ViewSettings) -> list[list[Segment]]:
        """Return the rows of a frame.

        If a signal arrives while plotext draws, raise Ended only after the frame: plotext would print a traceback.
        """
        self._is_drawing = True
        try:
            rows = drawing.rows(run, settings, *self.size())
        finally:
            self._is_drawing = False
        if self._signal:
            raise Ended(self._signal)
        return rows

    def paint(self, rows: list[list[Segment]]) -> None:
        """Show rows from the top of the screen."""
        from rich.segment import SegmentLines

        with contextlib.suppress(OSError):  # the terminal no longer exists
            self._console.size = self.size()
            self._live.update(SegmentLines(rows, new_lines=True), refresh=True)

    def pressed(self, timeout_s: float) -> str:
        """Return the keys that are pressed within ``timeout_s``.

        If a signal asked to stop this job (Ctrl-Z), stop first.
        """
        if self._is_to_stop:
            self._is_to_stop = False
            self._live.stop()
            self.restore()
            os.kill(os.getpid(), signal.SIGSTOP)
            self.take_over()
            self._live.start()
        return super().pressed(min(timeout_s, _WAIT_S))


def present(
    source: Follower | Replay, settings: ViewSettings, here: Machine, put: Callable[[str], None], *, stays: bool
) -> bool:
    """Show a recording or a replay on standard output: on the full screen or, if that is not possible, as status lines.

    Return False if the user quit before the end. Raises Ended if a signal asks this program to end.
    """
    from nncftools.render.terminal_plot import chart_problem

    output = sys.stdout.fileno()
    if can_draw(output):
        problem = chart_problem()
        if not problem:
            return _show_on_full_screen(source, settings, here, output=output, stays=stays)
        put(f"{problem}\n")
    _print_status(source, settings, here, put)
    return True


def _show_on_full_screen(
    source: Follower | Replay, settings: ViewSettings, here: Machine, *, output: int, stays: bool
) -> bool:
    """Draw a recording or a replay on the full screen until the end. If ``stays``, then wait until the user quits.

    Return False if the user quit before the end. Raises Ended if a signal asks this program to end.
    """
    from nncftools.live.figures import apply_key
    from nncftools.live.follower import Replay
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
                before_s = now_s
                next_s = now_s + FRAME_S
                screen.paint(screen.draw(drawing, source.run, settings))
            if not more and not stays:
                return True
            for key in screen.pressed(max(0.0, next_s - time.monotonic())):
                if key in QUIT:
                    return not more
                if isinstance(source, Replay) and source.move(key):
                    more = True
                settings = apply_key(settings, key, len(source.run.processes))
                next_s = 0.0


def _print_status(source: Follower | Replay, settings: ViewSettings, here: Machine, put: Callable[[str], None]) -> None:
    from nncftools.live.figures import status_line

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


_SMALLEST = 9
_SHARE = 2 / 3
"""Share of the screen that the view takes. The rest shows the command's output."""
_STANDARD_INPUT = 0


@dataclass
class LiveView:
    """A context manager during a recording: draws the view below the command's output."""

    descriptor: int
    """Descriptor of the terminal to draw on. Any other file gets no view, but a status line every few seconds."""
    settings: ViewSettings
    alone: bool
    """True if the command's output goes to a file, so that the view gets the whole screen."""

    def __post_init__(self) -> None:
        has_terminal = can_draw(self.descriptor)
        self.terminal = SharedTerminal(self.descriptor) if has_terminal else None
        """None if no view can be drawn on ``descriptor``."""
        self._keyboard: SharedKeyboard | None = None
        """The keyboard of the terminal, while keys control the view; else None. Always None if standard input is a
        terminal, because the command then gets the keys."""
        self._readers = TerminalReaders(self.descriptor)
        """Created before the command starts, because the object reads the terminal's original modes."""
        self._is_stopping = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._on_stop: Any = None

    def follow(self, journal: pathlib.Path, descriptor: int) -> None:
        """Start to show a journal while the sampler appends lines; ``descriptor`` has the journal open."""
        if self.terminal is not None:
            self._on_stop = signal.signal(signal.SIGTSTP, self._be_stopped)
        self._thread = threading.Thread(
            target=self._run,
            args=(journal, descriptor),
            name="live view",
            daemon=True,
        )
        self._thread.start()

    def __enter__(self) -> LiveView:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        try:
            if self._thread is not None:
                self._thread.join()
        finally:  # output of the command still waits, even if the user interrupts the last drawing
            if self._on_stop is not None:
                signal.signal(signal.SIGTSTP, self._on_stop)
            if self.terminal is not None:
                self.terminal.erase()

    def _be_stopped(self, _number: int, _frame: object) -> None:
        """On Ctrl-Z: remove the view, stop this job and, when continued, paint the view again."""
        assert self.terminal is not None
        self._is_stopping = True
        self.terminal.pause()
        if self._keyboard is not None:
            self._keyboard.restore()
        os.kill(os.getpid(), signal.SIGSTOP)
        if self._keyboard is not None:
            self._keyboard.take_over()
        self.terminal.repaint()
        self._is_stopping = False

    def _run(self, journal: pathlib.Path, descriptor: int) -> None:
        with contextlib.suppress(Exception):  # an error here must not harm the recording
            from nncftools.live.figures import Machine
            from nncftools.live.follower import Follower
            from nncftools.render.terminal_plot import chart_problem

            with Follower(journal, descriptor) as follower:
                here = Machine(is_here=follower.run.host.name == platform.node())
                if self.terminal is not None and not (problem := chart_problem()):
                    self._draw(follower, here, self.terminal)
                    return
                if self.terminal is not None:
                    self.terminal.step_aside(problem)
                self._print_status(follower, here)
            return
        if self.terminal is not None:
            self.terminal.step_aside("drawing failed")

    def _print_status(self, follower: Follower, here: Machine) -> None:
        from nncftools.live.figures import status_line

        while not self._stop.wait(STATUS_S):
            follower.read()
            line = f"nncf-tools: {status_line(follower.run, self.settings, here)}\n"
            with contextlib.suppress(OSError):
                os.write(self.descriptor, line.encode(errors="replace"))

    def _draw(self, follower: Follower, here: Machine, terminal: SharedTerminal) -> None:
        with contextlib.ExitStack() as stack:
            if not os.isatty(_STANDARD_INPUT):
                keyboard = SharedKeyboard(self.descriptor)
                stack.enter_context(keyboard)
                self._keyboard = keyboard if keyboard.works else None
                self._readers = TerminalReaders(self.descriptor)
            self._draw_until_aside(follower, here, terminal)
            if self._keyboard is not None:
                self._keyboard.give_way()
            self._stop.wait()  # from now on, the command may change the terminal's modes
            self._keyboard = None

    def _draw_until_aside(self, follower: Follower, here: Machine, terminal: SharedTerminal) -> None:
        from nncftools.live.figures import apply_key
        from nncftools.live.layout import Drawing

        settings = replace(self.settings, keys=self._keyboard is not None)
        drawing = Drawing(here)
        run = follower.run
        size = terminal.size()
        next_s = 0.0
        while not terminal.is_aside and not self._stop.is_set():
            now_s = time.monotonic()
            if now_s >= next_s or size != terminal.size():
                size = terminal.size()
                next_s = now_s + FRAME_S
                if not settings.paused:
                    follower.read()
                columns, rows = size
                height = rows - 1
                if not self.alone:
                    height = min(max(_SMALLEST, int(rows * _SHARE)), rows - 2)
                terminal.show(drawing.frame(run, settings, columns, max(1, height)), size)
            elif terminal.has_output:
                terminal.paint()
            alive = [process.pid for process in run.processes.values() if process.pid is not None]
            if not self._is_stopping and self._readers.are_there(reversed(alive)):
                terminal.step_aside("the command reads the terminal")
            elif self._keyboard is None:
                self._stop.wait(_WAIT_S)
            else:
                for key in self._keyboard.pressed(_WAIT_S):
                    if key in QUIT:
                        terminal.step_aside(f"{key} was pressed" if key.isprintable() else "Ctrl-D was pressed")
                    settings = apply_key(settings, key, len(run.processes))
                    terminal.has_output = True  # the terminal echoed the key: paint the whole view again
                    next_s = 0.0
