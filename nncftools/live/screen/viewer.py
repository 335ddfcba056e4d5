"""The view for itself, with keys: draws what a source tells until that has ended or somebody has seen enough."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from nncftools.live.screen.figures import status_line
from nncftools.live.screen.fullscreen import FullScreen
from nncftools.live.screen.layout import Drawing
from nncftools.live.screen.look import after

if TYPE_CHECKING:
    from collections.abc import Callable

    from nncftools.live.screen.figures import Machine
    from nncftools.live.screen.look import Look
    from nncftools.live.state.run import Run

FRAME_S = 0.5
STATUS_S = 5.0
_LOOK_S = 0.5
QUIT = ("q", "Q", "\x03", "\x04")


class Source(Protocol):
    """What is shown."""

    run: Run

    def step(self, passed_s: float) -> bool:
        """Take what happened in the last ``passed_s`` seconds; return whether more is to come."""


def can_draw(descriptor: int) -> bool:
    """Return whether a descriptor is a terminal on which the cursor can be moved."""
    return os.isatty(descriptor) and os.environ.get("TERM") not in {None, "", "dumb"} and os.name == "posix"


def show(source: Source, look: Look, here: Machine, output: int, *, stays: bool) -> bool:
    """Draw on a terminal until the source has ended, and with ``stays`` until a key is pressed then.

    Return False when it was left before the source had ended. Raises ``fullscreen.Ended`` for a signal.
    """
    look = replace(look, keys=True)
    drawing = Drawing(here)
    with FullScreen(output) as screen:
        size = screen.size()
        before_s = time.monotonic()
        next_s = 0.0
        more = True
        while True:
            now_s = time.monotonic()
            if now_s >= next_s:
                if more and not look.paused:
                    more = source.step(now_s - before_s)
                before_s, next_s = now_s, now_s + FRAME_S
                if size != (size := screen.size()):
                    screen.repaint()
                screen.paint(drawing.frame(source.run, look, *size))
            if not more and not stays:
                return True
            key = screen.key(max(0.0, next_s - time.monotonic()))
            if key in QUIT:
                return not more
            if key:
                look = after(look, key)
                screen.paint(drawing.frame(source.run, look, *size))


def tell(source: Source, look: Look, here: Machine, put: Callable[[str], None]) -> None:
    """Say every few seconds how it goes, in plain lines, until the source has ended."""
    before_s = time.monotonic()
    next_s = before_s + STATUS_S
    while True:
        now_s = time.monotonic()
        more = source.step(now_s - before_s)
        before_s = now_s
        if now_s >= next_s or not more:
            next_s = now_s + STATUS_S
            put(f"{status_line(source.run, look, here)}\n")
        if not more:
            return
        time.sleep(_LOOK_S)
