"""What happens to the command's output, and to the screen, while a recording runs."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from nncftools.errors import UsageError
from nncftools.files import above_standard, write_all
from nncftools.sampler.starter import Interrupted, held_back

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable

    from nncftools.cli.relay import Relay
    from nncftools.live.screen.live_view import LiveView
    from nncftools.live.screen.look import Look
    from nncftools.render.view import View
    from nncftools.sampler.starter import Starter

_STANDARD_ERROR = 2


@dataclass(frozen=True)
class Showing:
    """What somebody wants to see while the command runs."""

    live: bool = False
    capture: pathlib.Path | None = None
    """The file that gets the command's output in place of ours."""


NOTHING = Showing()


class Scene:
    """A context manager around a recording: nothing at all, a relay, a live view, or both."""

    def __init__(self, showing: Showing, view: View, heed: Callable[[str], None] | None, starter: Starter) -> None:
        """Show a run as ``view`` says; ``heed`` is called with each line of output, where somebody wants them.

        Whoever holds the command's output open beyond its end is waited for, until ``starter`` is interrupted.
        """
        self._starter = starter
        self._showing = showing
        self._view = view
        self._heed = heed
        self._captured = -1
        self._is_broken = False
        self._relay: Relay | None = None
        self._live_view: LiveView | None = None
        self._stack = contextlib.ExitStack()

    @property
    def outputs(self) -> tuple[int | None, int | None]:
        """What the command is to have as standard output and error; None for ours."""
        if self._relay is not None:
            return self._relay.outputs
        return (None, None) if self._captured < 0 else (self._captured, self._captured)

    @property
    def relays(self) -> list[tuple[int, int]]:
        """Descriptors that the command's output arrives at, and where it goes."""
        if self._relay is None:
            return []
        return [(source, to if self._captured < 0 else self._captured) for source, to in self._relay.ends]

    def __enter__(self) -> Self:
        """Open what output goes to. Raises UsageError when it cannot be captured, OSError when there is no terminal."""
        with self._stack:
            self._open_capture()
            if self._showing.live:
                from nncftools.live.screen.live_view import LiveView

                live_view = LiveView(
                    _STANDARD_ERROR,
                    look_of(self._view, sys.stderr.encoding),
                    alone=self._captured >= 0,
                    resized=self._resize,
                )
                self._live_view = self._stack.enter_context(live_view)
            draws = self._live_view is not None and self._live_view.terminal is not None and self._captured < 0
            if self._heed is not None or draws:
                from nncftools.cli.relay import Relay

                relay = Relay(
                    self._heed,
                    self._put if draws or self._captured >= 0 else None,
                    only_terminals=self._heed is None,
                    only_pipes=self._captured >= 0,
                )
                self._relay = self._stack.enter_context(relay)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *details: object) -> None:
        # what was to be shown must not change the command's exit status
        with contextlib.suppress(Exception, Interrupted), self._starter.interruptible():
            self._stack.close()

    def begin(self, journal: pathlib.Path, descriptor: int, released: Callable[[int], object]) -> None:
        """Begin to pass on and to draw, once the command has been started; ``descriptor`` is of its journal.

        ``released`` is called with each end of ``relays`` that is closed.
        """
        if self._relay is not None:
            self._relay.start(released)
        if self._live_view is not None:
            with held_back():
                self._live_view.follow(journal, descriptor)

    def _open_capture(self) -> None:
        path = self._showing.capture
        if path is None:
            return
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW
            self._captured = above_standard(os.open(path, flags, 0o666))
        except OSError as error:
            raise UsageError(f"option --capture: cannot write {str(path)!r}: {error.strerror}") from error
        self._stack.callback(os.close, self._captured)

    def _put(self, descriptor: int, data: bytes) -> None:
        terminal = None if self._live_view is None else self._live_view.terminal
        if self._captured < 0 and terminal is not None and os.isatty(descriptor) and not self._is_broken:
            try:
                terminal.take(data)
            except Exception:  # noqa: BLE001 — whatever fails here must not stop the command's output
                self._is_broken = True
            else:
                return
        to = descriptor if self._captured < 0 else self._captured
        write_all(to, data)

    def _resize(self) -> None:
        if self._relay is not None:
            self._relay.resize()


def look_of(view: View, encoding: str | None, state: str = "recording") -> Look:
    """Return the look that a stream of this encoding can show."""
    from nncftools.live.screen.look import Look

    return Look(
        metrics=view.metrics,
        unit=view.unit,
        unicode=(encoding or "ascii").lower().replace("-", "").startswith("utf"),
        colour=not os.environ.get("NO_COLOR"),
        state=state,
    )
