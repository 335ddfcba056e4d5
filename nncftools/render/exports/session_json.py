"""The session itself, whatever it was read from: a journal, another tool's log, several files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nncftools.session.store import encoded

if TYPE_CHECKING:
    from nncftools.render.view import View
    from nncftools.session.session import Session


def report(session: Session, _view: View) -> bytes:
    """Return what a file of the session holds; what was in the loaded one and is unknown to this version is kept."""
    return encoded(session)
