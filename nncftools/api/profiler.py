"""``Profiler``: records what each operation of a program costs, in a separate process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from nncftools.api.recorder import Recorder
from nncftools.errors import NncfToolsError
from nncftools.marks import operations

if TYPE_CHECKING:
    import os
    import pathlib

    from typing_extensions import Self

    from nncftools.api.session import Session

_METRICS = ("rss", "vms", "system")
_NOTHING = "Profiler: nothing was recorded yet. Start it by `with profiler:`, or by `profiler.start()`."


class Profiler:
    """Records this program and its descendants, and the operations that it names.

    Use ``with Profiler() as p:`` and inside it ``with p.operation("export"):`` or ``p.mark("export")``, or decorate a
    function with ``@p.operation("compile")``. Then call ``p.report()``, ``p.plot("run.png")`` or
    ``p.to_html("run.html")``, or use ``p.session``.
    """

    def __init__(self, interval: float = 0.05, *, include_children: bool = True) -> None:
        """Prepare to sample every ``interval`` seconds. Raises ValueError unless it is from 1 ms to a year."""
        self._number = next(operations.profilers)
        self._recorder = Recorder(_METRICS, interval, children=include_children, profiler=self._number)

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
        if self.is_running:
            self._recorder.stop()
            operations.end_marks(self._number)  # in a recording around this one, they would go on

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def mark(self, name: str) -> None:
        """Start an operation that the next ``mark`` on its level ends; nearly free if nothing is recorded."""
        if self._recorder.is_running:
            operations.mark(name, self._number)

    def operation(self, name: str) -> operations.Marking:
        """Name a ``with`` block or a decorated function as an operation; an exception ends it, too.

        A coroutine or generator function is an operation from its first step to its end.
        """
        return operations.Marking(name, lambda: self._number if self._recorder.is_running else None)

    @property
    def session(self) -> Session:
        """The recording so far, with its marks. Raises NncfToolsError before the start."""
        session = self._recorder.session
        if session is None:
            raise NncfToolsError("nothing was recorded: start the profiler first")
        return session

    def report(self) -> str:
        """Return the figures of the run and of its operations as text. Raises NncfToolsError before the start."""
        return self.session.report()

    def plot(self, path: str | os.PathLike[str]) -> pathlib.Path:
        """Draw memory, CPU, I/O and operations to a .png, .svg or .pdf file, and return its path.

        Raises NncfToolsError before the start, OSError.
        """
        return self.session.plot(path)

    @overload
    def to_html(self) -> str: ...

    @overload
    def to_html(self, path: str | os.PathLike[str]) -> pathlib.Path: ...

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str | pathlib.Path:
        """Return the page with interactive charts; with ``path``, write it and return its path.

        Raises NncfToolsError before the start, and when plotly is not installed; OSError.
        """
        return self.session.to_html() if path is None else self.session.to_html(path)

    def __repr__(self) -> str:
        """Return the session in five lines, or what to do before there is one."""
        return _NOTHING if self._recorder.session is None else repr(self.session)

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:  # noqa: ANN401, FBT001 — as IPython calls it
        """Show the report in a terminal."""
        printer.text(_NOTHING if self._recorder.session is None else self.report())

    def _repr_html_(self) -> str:
        """Show chart and tables in a notebook, in its own colours."""
        return f"<div>{_NOTHING}</div>" if self._recorder.session is None else self.session._repr_html_()
