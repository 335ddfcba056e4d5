"""``Profiler``: records what each operation of a program costs, in a separate process."""

from __future__ import annotations

import base64
import contextlib
import html
import io
import pathlib
import tempfile
from typing import TYPE_CHECKING, Any

from nncftools.api.recorder import Recorder
from nncftools.errors import NncfToolsError
from nncftools.marks import operations

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from typing_extensions import Self

    from nncftools.session.session import Session

_METRICS = ("rss", "vms", "system")
_WIDTH = 100


class Profiler:
    """Records this program and its descendants, and the operations that it names.

    Use ``with Profiler() as p:`` and inside it ``with p.operation("export"):`` or ``p.mark("export")``, or decorate a
    function with ``@p.operation("compile")``. Then call ``p.report()`` or ``p.plot("run.png")``, or use ``p.session``.
    """

    def __init__(self, interval: float = 0.05, *, include_children: bool = True) -> None:
        """Prepare to sample every ``interval`` seconds. Raises ValueError unless it is from 1 ms to a year."""
        self._recorder = Recorder(_METRICS, interval, children=include_children)

    @property
    def is_running(self) -> bool:
        """Whether the recording was started and not stopped."""
        return self._recorder.is_running

    def start(self) -> Self:
        """Start, and return after the first sample. Raises RuntimeError if it is already running, NncfToolsError."""
        if self.is_running:
            raise RuntimeError("the profiler is already running")
        self._recorder.start()
        return self

    def stop(self) -> None:
        """End the recording; does nothing if none is running."""
        self._recorder.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def mark(self, name: str) -> None:
        """Start an operation that the next ``mark`` on its level ends; nearly free if nothing is recorded."""
        if self._recorder.is_running:
            operations.mark_operation(name)

    @contextlib.contextmanager
    def operation(self, name: str) -> Iterator[None]:
        """Name a ``with`` block or a decorated function as an operation; an exception ends it, too."""
        with operations.operation(name) if self._recorder.is_running else contextlib.nullcontext():
            yield

    @property
    def session(self) -> Session:
        """The recording so far, with its marks. Raises NncfToolsError before the start."""
        session = self._recorder.session
        if session is None:
            raise NncfToolsError("nothing was recorded: start the profiler first")
        return session

    def report(self) -> str:
        """Return the figures of the run and of its operations as text. Raises NncfToolsError before the start."""
        from rich.console import Console

        from nncftools.render.tables import text
        from nncftools.render.view import View

        console = Console(file=io.StringIO(), width=_WIDTH, highlight=False, color_system=None)
        with console.capture() as captured:
            console.print(text.report(self.session, View(_METRICS)))
        return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())

    def plot(self, path: str | os.PathLike[str]) -> pathlib.Path:
        """Draw memory, CPU, I/O and operations to a .png, .svg or .pdf file, and return its path.

        Raises NncfToolsError before the start, OSError.
        """
        from nncftools.render.pictures import panels
        from nncftools.render.view import View

        picture = pathlib.Path(path)
        panels.draw(self.session, View(["rss"]), picture)
        return picture

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:  # noqa: ANN401, FBT001 — as IPython calls it
        """Show the report in a terminal."""
        printer.text(self.report())

    def _repr_html_(self) -> str:
        """Show the picture and the report in a notebook."""
        with tempfile.TemporaryDirectory() as folder:
            picture = self.plot(pathlib.Path(folder) / "run.png").read_bytes()
        image = base64.b64encode(picture).decode()
        return f'<img src="data:image/png;base64,{image}" width="900"><pre>{html.escape(self.report())}</pre>'
