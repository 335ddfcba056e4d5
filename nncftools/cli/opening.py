"""From a path on the command line to a session with its marks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nncftools.cli import destination
from nncftools.marks.sidecars import MARKS_ENDING, beside

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Sequence

    from nncftools.session.model import Session


def opened(path: pathlib.Path | None, log_dir: pathlib.Path, sidecars: Sequence[pathlib.Path] = ()) -> Session:
    """Return a session, the newest in a folder, or the newest of all.

    A sidecar beside it holds its marks, in place of its own; the operations of ``sidecars`` are put around them.
    Raises NncfToolsError.
    """
    from nncftools.session.model import Session

    source = path or log_dir
    file = destination.newest_session(source) if path is None or source.is_dir() else source
    session = Session.load(file)
    found = beside(file)
    if found is None and not sidecars:
        return session
    from nncftools.marks import collecting

    if found is not None and found.name.endswith(MARKS_ENDING) and file.name.endswith(destination.JOURNAL_ENDING):
        collecting.take_log(session, found.read_bytes(), found.name)
    elif found is not None:
        session.marks = collecting.of_sidecar(found, session)
    for sidecar in sidecars:
        collecting.put_around(session, collecting.of_sidecar(sidecar, session))
    return session
