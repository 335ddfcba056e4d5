"""A progress bar for reading long files, on a terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_AFTER_S = 2.0
"""A shorter read shows no bar."""


@contextlib.contextmanager
def reading(name: str) -> Iterator[Callable[[int, int | None], None] | None]:
    """Yield a callback for the bytes read so far and the total (None if unknown); without a terminal, yield None."""
    if not sys.stderr.isatty():
        yield None
        return
    begun_s = time.monotonic()
    with contextlib.ExitStack() as stack:
        bar: Callable[[int, int | None], None] | None = None

        def show(done: int, total: int | None) -> None:
            nonlocal bar
            if bar is None and time.monotonic() - begun_s > _AFTER_S:
                bar = _bar(stack, name)
            if bar is not None:
                bar(done, total)

        yield show


def _bar(stack: contextlib.ExitStack, name: str) -> Callable[[int, int | None], None]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    shown = stack.enter_context(Progress(*columns, console=Console(stderr=True), transient=True))
    task = shown.add_task(f"Reading {name}", total=None)
    return lambda done, total: shown.update(task, completed=done, total=total)
