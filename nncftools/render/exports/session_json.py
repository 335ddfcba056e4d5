"""The session itself, whether it was read from a journal, another tool's log or several files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nncftools.session.session import encoded

if TYPE_CHECKING:
    from nncftools.render.view import View
    from nncftools.session.session import Session


def report(session: Session, _view: View) -> bytes:
    """Return the contents of a session file; fields of the loaded file that this version does not know are kept."""
    return encoded(session)
