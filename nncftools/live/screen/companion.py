"""Shows a recording while its command runs: in a thread of the command line, which itself only waits."""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import sys
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from nncftools.live.screen.stage import Stage

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable

    from nncftools.live.screen.figures import Machine
    from nncftools.live.screen.look import Look
    from nncftools.live.state.follower import Follower

FRAME_S = 0.5
STATUS_S = 5.0
_LOOK_S = 0.1
_SMALLEST, _LARGEST = 8, 24
_LEAST_ROWS = 4


class Companion:
    """A context manager around a recording that runs: draws it, and passes the command's output on above the view."""

    def __init__(self, descriptor: int, look: Look, *, alone: bool, resized: Callable[[], None] = lambda: None) -> None:
        """Draw on ``descriptor``; lines every few seconds when that is no terminal that can be drawn on.

        ``alone``: the command writes elsewhere, the view has the whole screen. ``resized`` is called when the terminal
        has another size.
        """
        self._descriptor = descriptor
        self._look = replace(look, state="recording")
        self._alone = alone
        self._resized = resized
        self.draws = os.isatty(descriptor) and os.environ.get("TERM") not in {None, "", "dumb"}
        self.stage = Stage(descriptor) if self.draws else None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._handlers: dict[int, Any] = {}

    def follow(self, journal: pathlib.Path, descriptor: int) -> None:
        """Begin to show what is written to a journal; ``descriptor`` has that very file open."""
        self._handle_signals()
        self._thread = threading.Thread(target=self._run, args=(journal, descriptor), name="live view", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if self.stage is not None:
            self.stage.erase()

    def _handle_signals(self) -> None:
        """Have the view leave the screen while the job is stopped."""
        if self.stage is None or sys.platform == "win32":
            return
        self._handlers[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, self._be_stopped)

    def _be_stopped(self, _number: int, _frame: object) -> None:
        assert self.stage is not None
        self.stage.pause()
        os.kill(os.getpid(), signal.SIGSTOP)
        self.stage.replace()

    def _run(self, journal: pathlib.Path, descriptor: int) -> None:
        with contextlib.suppress(Exception):  # what fails here must not harm the recording
            self._show(journal, descriptor)
            return
        if self.stage is not None:
            self.stage.step_aside("it could not be drawn")

    def _show(self, journal: pathlib.Path, descriptor: int) -> None:
        from nncftools.live.screen.figures import Machine
        from nncftools.live.state.follower import Follower

        with Follower(journal, descriptor) as follower:
            here = Machine(is_here=follower.run.facts.host.name == platform.node())
            if self.stage is None:
                self._tell(follower, here)
            else:
                self._draw(follower, here, self.stage)

    def _tell(self, follower: Follower, here: Machine) -> None:
        from nncftools.live.screen.figures import status_line

        while not self._stop.wait(STATUS_S):
            follower.read()
            line = f"nncf-tools: {status_line(follower.run, self._look, here)}\n"
            with contextlib.suppress(OSError):
                os.write(self._descriptor, line.encode(errors="replace"))

    def _draw(self, follower: Follower, here: Machine, stage: Stage) -> None:
        from nncftools.live.screen.figures import status_line
        from nncftools.live.screen.layout import Drawing
        from nncftools.live.screen.readers import TerminalReaders

        drawing = Drawing(here)
        readers = TerminalReaders(self._descriptor)
        size = stage.size()
        next_s = time.monotonic()
        while not stage.is_aside:
            if time.monotonic() >= next_s:
                follower.read()
            lived = [process.pid for process in follower.run.processes.values() if process.pid is not None]
            if readers.are_there(reversed(lived)):
                stage.step_aside("the command reads the terminal")
                break
            if size != (size := stage.size()):
                self._resized()
                next_s = 0.0
            if time.monotonic() >= next_s:
                next_s = time.monotonic() + FRAME_S
                columns, rows = size
                height = rows - 1 if self._alone else min(_LARGEST, max(_SMALLEST, rows // 2), rows - 2)
                if height >= _LEAST_ROWS:
                    stage.show(drawing.frame(follower.run, self._look, columns, height))
                else:
                    stage.show([status_line(follower.run, self._look, here)[: columns - 1]])
            elif stage.has_output:
                stage.paint()
            if self._stop.wait(_LOOK_S):
                break
