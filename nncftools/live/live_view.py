"""Shows a recording while its command runs: in a thread of the command line, which itself only waits."""

from __future__ import annotations

import contextlib
import os
import pathlib
import platform
import signal
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from nncftools.live.shared_terminal import FRAME_S, STATUS_S, SharedTerminal, TerminalReaders, can_draw

if TYPE_CHECKING:
    from nncftools.live.figures import Machine, ViewSettings
    from nncftools.live.follower import Follower
    from nncftools.live.viewer import SharedKeyboard


_SMALLEST, _SHARE = 9, 2 / 3
"""The view takes this part of the screen, and leaves the rest to the command's output."""
_WAIT_S = 0.1
_STANDARD_INPUT = 0


@dataclass
class LiveView:
    """A context manager around a recording that runs: draws it, with the command's output above the view."""

    descriptor: int
    """What is drawn on; if it is not a terminal that can be drawn on, it gets a line every few seconds."""
    settings: ViewSettings
    alone: bool
    """Whether the command writes elsewhere, and the view has the whole screen."""

    def __post_init__(self) -> None:
        """Begin without a thread."""
        self.terminal = SharedTerminal(self.descriptor) if can_draw(self.descriptor) else None
        """None when the descriptor cannot be drawn on."""
        self._keyboard: SharedKeyboard | None = None
        """None while the command may read keys, from the same terminal."""
        self._readers = TerminalReaders(self.descriptor)
        """Since before the command may change the terminal's modes."""
        self._is_stopping = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._on_stop: Any = None

    def follow(self, journal: pathlib.Path, descriptor: int) -> None:
        """Begin to show what is written to a journal; ``descriptor`` has that very file open."""
        if self.terminal is not None:
            self._on_stop = signal.signal(signal.SIGTSTP, self._be_stopped)
        self._thread = threading.Thread(target=self._run, args=(journal, descriptor), name="live view", daemon=True)
        self._thread.start()

    def __enter__(self) -> LiveView:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        try:
            if self._thread is not None:
                self._thread.join()
        finally:  # also when the user does not wait for a last drawing: the command's output waits in the terminal
            if self._on_stop is not None:
                signal.signal(signal.SIGTSTP, self._on_stop)
            if self.terminal is not None:
                self.terminal.erase()

    def _be_stopped(self, _number: int, _frame: object) -> None:
        """Remove the view from the screen while the job is stopped."""
        assert self.terminal is not None
        self._is_stopping = True
        self.terminal.pause()
        if self._keyboard is not None:
            self._keyboard.restore()
        os.kill(os.getpid(), signal.SIGSTOP)
        if self._keyboard is not None:
            self._keyboard.take_over()
        self.terminal.replace()
        self._is_stopping = False

    def _run(self, journal: pathlib.Path, descriptor: int) -> None:
        with contextlib.suppress(Exception):  # a failure here must not harm the recording
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
            self.terminal.step_aside("it could not be drawn")

    def _print_status(self, follower: Follower, here: Machine) -> None:
        from nncftools.live.figures import status_line

        while not self._stop.wait(STATUS_S):
            follower.read()
            line = f"nncf-tools: {status_line(follower.run, self.settings, here)}\n"
            with contextlib.suppress(OSError):
                os.write(self.descriptor, line.encode(errors="replace"))

    def _draw(self, follower: Follower, here: Machine, terminal: SharedTerminal) -> None:
        from nncftools.live.viewer import SharedKeyboard

        with contextlib.ExitStack() as stack:
            if not os.isatty(_STANDARD_INPUT):
                keyboard = SharedKeyboard(self.descriptor)
                stack.enter_context(keyboard)
                self._keyboard = keyboard if keyboard.works else None
                self._readers = TerminalReaders(self.descriptor)
            self._draw_until_aside(follower, here, terminal)
            if self._keyboard is not None:
                self._keyboard.give_way()
            self._stop.wait()  # during that, the command may change modes of the terminal
            self._keyboard = None

    def _draw_until_aside(self, follower: Follower, here: Machine, terminal: SharedTerminal) -> None:
        from nncftools.live.figures import after
        from nncftools.live.layout import Drawing
        from nncftools.live.viewer import QUIT

        settings = replace(self.settings, keys=self._keyboard is not None)
        drawing = Drawing(here)
        run = follower.run
        size = terminal.size()
        next_s = 0.0
        while not terminal.is_aside and not self._stop.is_set():
            now_s = time.monotonic()
            if size != (size := terminal.size()):
                next_s = 0.0
            if now_s >= next_s:
                next_s = now_s + FRAME_S
                if not settings.paused:
                    follower.read()
                columns, rows = size
                height = rows - 1 if self.alone else min(max(_SMALLEST, int(rows * _SHARE)), rows - 2)
                terminal.show(drawing.frame(run, settings, columns, max(1, height)), size)
            elif terminal.has_output and size == terminal.size():
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
                    settings = after(settings, key, len(run.processes))
                    terminal.has_output = True  # the key was echoed: all is painted again
                    next_s = 0.0
