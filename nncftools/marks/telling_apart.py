"""What marks say where operations run beside each other: what each is inside of, and its end."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from msgspec.structs import replace

from nncftools.session.operations import with_ends
from nncftools.session.peak_place import enclosing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nncftools.session.model import Mark
    from nncftools.session.session import Session


def tell_apart(
    marks: Sequence[Mark], around: Mapping[int, Mark], until_s: Mapping[int, float], session: Session
) -> None:
    """Set what readers of marks, which are in order, need to find each one's end and what it is inside of.

    Both arguments are by ``id()``: what each is inside of, and until when one without an end goes on at most. Few marks
    need more than their depth.
    """
    process_ends = {process.pid: process.end_s for process in session.processes if process.end_s is not None}
    for mark, end_s in with_ends(marks, session):
        most_s = until_s.get(id(mark), end_s)
        last_s = min(most_s, session.duration_s, process_ends.get(mark.pid, session.duration_s))
        if mark.end_s is None and end_s < last_s:
            mark.end_s = last_s
    ended = [replace(mark, end_s=end_s) for mark, end_s in with_ends(marks, session)]
    place_of = {id(mark): place for place, mark in enumerate(ended)}
    found = enclosing(ended)
    numbers = count(1 + max((mark.op or 0 for mark in marks), default=0))
    for mark, copy in zip(marks, ended, strict=True):
        outer = around.get(id(mark))
        if outer is None:
            continue
        known = found.get(id(copy))
        if known is None or marks[place_of[id(known)]] is not outer:
            outer.op = outer.op or next(numbers)
            mark.inside = outer.op
