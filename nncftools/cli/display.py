"""Where the command's output goes, and what the screen shows, during a recording."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nncftools.errors import UsageError
from nncftools.files import open_ours, write_all
from nncftools.sampler.starter import Interrupted, held_back

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable

    from typing_extensions import Self

    from nncftools.cli.relay import Relay
    from nncftools.live.figures import Look
    from nncftools.live.live_view import LiveView
    from nncftools.render.view import View
    from nncftools.sampler.starter import Starter

_STANDARD_ERROR = 2
_CONSOLE = "linux"
"""The kernel's own console: its fonts have no Braille."""


@dataclass(frozen=True)
class DisplayOptions:
    """What to show while the command runs."""

    live: bool = False
    capture: pathlib.Path | int | None = None
    """The file for the command's output, or the descriptor of one that the caller has opened and will close."""


NO_DISPLAY = DisplayOptions()


class OutputDisplay:
    """A context manager around a recording: a relay, a live view, both, or nothing."""

    def __init__(
        self, options: DisplayOptions, view: View, on_line: Callable[[str], None] | None, starter: Starter
    ) -> None:
        """Show a run in ``view``; if ``on_line`` is given, call it with each line of output.

        At the end, wait for all processes that hold the command's output open, unless ``starter`` is interrupted.
        """
        self._starter = starter
        self._options = options
        self._view = view
        self._on_line = on_line
        self._captured = -1
        self._is_broken = False
        self._relay: Relay | None = None
        self._live_view: LiveView | None = None
        self._stack = contextlib.ExitStack()

    @property
    def outputs(self) -> tuple[int | None, int | None]:
        """The command's standard output and error; None: it inherits ours."""
        if self._relay is not None:
            return self._relay.outputs
        return (None, None) if self._captured < 0 else (self._captured, self._captured)

    @property
    def relays(self) -> list[tuple[int, int]]:
        """Pairs of descriptors: where the command's output arrives, and where it goes."""
        if self._relay is None:
            return []
        return [(source, to if self._captured < 0 else self._captured) for source, to in self._relay.ends]

    def __enter__(self) -> Self:
        """Open the outputs. Raises UsageError if the capture file cannot be opened, OSError if a terminal cannot."""
        with self._stack:
            self._open_capture()
            if self._options.live:
                from nncftools.live.live_view import LiveView

                live_view = LiveView(
                    _STANDARD_ERROR,
                    look_of(self._view, sys.stderr.encoding),
                    alone=self._captured >= 0,
                    resized=self._resize,
                )
                self._live_view = self._stack.enter_context(live_view)
            draws = self._live_view is not None and self._live_view.terminal is not None and self._captured < 0
            if self._on_line is not None or draws:
                from nncftools.cli.relay import Relay

                relay = Relay(
                    self._on_line,
                    self._put if draws or self._captured >= 0 else None,
                    only_terminals=self._on_line is None,
                    only_pipes=self._captured >= 0,
                )
                self._relay = self._stack.enter_context(relay)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *details: object) -> None:
        # a failing display must not change the command's exit status
        with contextlib.suppress(Exception, Interrupted), self._starter.interruptible():
            self._stack.close()

    def begin(self, journal: pathlib.Path, descriptor: int, released: Callable[[int], object]) -> None:
        """Start to relay and to draw, after the command has started; ``descriptor`` has the journal open.

        ``released`` is called with each source in ``relays`` that is closed.
        """
        if self._relay is not None:
            self._relay.start(released)
        if self._live_view is not None:
            with held_back():
                self._live_view.follow(journal, descriptor)

    def _open_capture(self) -> None:
        capture = self._options.capture
        if capture is None:
            return
        if isinstance(capture, int):
            self._captured = capture
            return
        try:
            self._captured = open_ours(capture)
        except OSError as error:
            raise UsageError(f"option --capture: cannot write {str(capture)!r}: {error.strerror}") from error
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
        to = descriptor if self._captured < 0 else self._captured
        write_all(to, data)

    def _resize(self) -> None:
        if self._relay is not None:
            self._relay.resize()


def look_of(view: View, encoding: str | None, state: str = "recording") -> Look:
    """Return a look that uses only characters of this encoding, and colours that the terminal has."""
    from rich.console import Console

    from nncftools.live.figures import Look
    from nncftools.render.canvas import colours_of

    return Look(
        metrics=view.metrics,
        unit=view.unit,
        unicode=_is_unicode(encoding) and os.environ.get("TERM") != _CONSOLE,
        colours=colours_of(Console(force_terminal=True, legacy_windows=False)),
        state=state,
    )


def _is_unicode(encoding: str | None) -> bool:
    return (encoding or "ascii").lower().replace("-", "").startswith("utf")
