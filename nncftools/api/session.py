"""The session as programs and notebooks see it: a recorded run that reports, draws and shows itself."""

from __future__ import annotations

import io
import os
import pathlib
from typing import overload

from nncftools.analysis import session as analysis
from nncftools.metrics import memory_of
from nncftools.render.view import PICTURES, View

_SHOWN = ("rss", "pss", "uss", "system")
"""Where a session has one of these, outputs show these and no other memory."""
_WIDTH = 100


class Session(analysis.Session):
    """One recorded run. Inside, everything is bytes and seconds; null is unknown, never 0.

    ``Session.load(path)`` reads a session or journal of the commands. Then ``report()`` is text, ``plot("run.png")`` a
    picture, ``to_html()`` a page, ``to_pandas()`` the samples as a table, and ``save(path)`` a file. A notebook shows
    the picture and tables.
    """

    def report(self) -> str:
        """Return the figures of the run and of its operations as text of at most 100 columns; memory in MiB."""
        from rich.console import Console

        from nncftools.render import text

        console = Console(file=io.StringIO(), width=_WIDTH, highlight=False, color_system=None)
        with console.capture() as captured:
            console.print(text.report(self, self._view()))
        return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())

    def plot(self, path: str | os.PathLike[str]) -> pathlib.Path:
        """Draw memory, CPU, I/O and operations to a .png, .svg or .pdf file, and return its path.

        Raises NncfToolsError for another ending, OSError.
        """
        from nncftools.errors import NncfToolsError
        from nncftools.render import panels

        picture = pathlib.Path(path)
        if picture.suffix.lower() not in PICTURES:
            raise NncfToolsError(f"{str(path)!r}: a picture ends in {', '.join(PICTURES)}")
        panels.draw(self, self._view(), picture)
        return picture

    @overload
    def to_html(self) -> str: ...

    @overload
    def to_html(self, path: str | os.PathLike[str]) -> pathlib.Path: ...

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str | pathlib.Path:
        """Return the page with interactive charts, which needs no network; with ``path``, write it and return its path.

        Raises NncfToolsError when plotly is not installed, OSError.
        """
        from nncftools.files import write_file
        from nncftools.render import page

        content = page.report(self, self._view())
        if path is None:
            return content.decode()
        written = pathlib.Path(path)
        write_file(written, content)
        return written

    def __repr__(self) -> str:
        """Return five lines: the command, the run, the peak, the cost, and what the session holds."""
        from nncftools.render.text import five_lines

        return five_lines(self, self._view().metrics)

    def _repr_markdown_(self) -> str:
        """Show the picture and tables in a notebook."""
        from nncftools.render.text import notebook_cell

        return notebook_cell(self, self._view())

    def _view(self) -> View:
        known = [name for name in memory_of(self.samples.metrics) if self.samples.figures(name).known]
        return View([name for name in known if name in _SHOWN] or known)
