"""The view by itself, with keys: draws a source until it ends or the user quits."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from nncftools.live.screen.figures import status_line
from nncftools.live.screen.fullscreen import FullScreen
from nncftools.live.screen.layout import Drawing
from nncftools.live.screen.live_view import FRAME_S, STATUS_S
from nncftools.live.screen.look import after

if TYPE_CHECKING:
    from collections.abc import Callable

    from nncftools.live.screen.figures import Machine
    from nncftools.live.screen.look import Look
    from nncftools.live.state.run import Run

_STEP_S = 0.5
QUIT = ("q", "Q", "\x03", "\x04")


class Source(Protocol):
    """A run to show, and what moves it on."""

    run: Run

    def step(self, passed_s: float) -> bool:
        """Take what happened in the last ``passed_s`` seconds; return whether there is more to come."""


def show(source: Source, look: Look, here: Machine, output: int, *, stays: bool) -> bool:
    """Draw on a terminal until the source ends; with ``stays``, then wait for the user to quit.

    Return False if the user quit before the source ended. Raises ``fullscreen.Ended`` for a signal.
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


def print_status(source: Source, look: Look, here: Machine, put: Callable[[str], None]) -> None:
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
            put(f"{status_line(source.run, look, here)}\n")
        if more:
            time.sleep(_STEP_S)
