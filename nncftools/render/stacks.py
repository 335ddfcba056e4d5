"""The build-up of a peak as stacks with names, for other programs: what all formats of stacks have in common."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from nncftools.analysis.build_up import INHERITED, NOT_SEEN, of_peak
from nncftools.analysis.code_places import is_machinery, short_file
from nncftools.errors import NncfToolsError
from nncftools.units import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nncftools.analysis.build_up import BuildUp
    from nncftools.session.model import Frame
    from nncftools.session.session import Session

UNCERTAIN = "not certain"
"""In brackets, the only frame of "A or B" whose stacks share no frame, if only what is certain counts."""
WITHOUT_STACK = {NOT_SEEN: "not seen", INHERITED: "shared with the parent process, at most"}
"""What has no stack, in words; in brackets, its only frame."""
NEEDED = "stacks"
"""The error's ``mended_by``: the session has no stacks."""
_LONGEST = 200


class Named(NamedTuple):
    """A frame with what a reader sees of it."""

    name: str
    file: str = ""
    """The whole path."""
    line: int = 0


def build_up_of_peak(session: Session, format_: str) -> BuildUp:
    """Return the build-up of the peak. Raises NncfToolsError, which names the format, when it is not known."""
    found = of_peak(session)
    if found is not None:
        return found
    snapshots = session.snapshots
    if snapshots is not None and snapshots.missing:
        why = f"none were taken: {printable(snapshots.missing)}"
    elif snapshots is None or not snapshots.stacks:
        why = "this session has none"
    else:
        why = "the moment of the peak is unknown"
    raise NncfToolsError(f"{format_} needs the stacks of the peak; {why}", mended_by=NEEDED)


def named_stacks(build_up: BuildUp, *, only_certain: bool = False) -> Iterator[tuple[tuple[Named, ...], int]]:
    """Yield stacks, the outermost frame first, and their bytes: they sum to the peak.

    What belongs to one of two stacks counts for the nearer one, or, with ``only_certain``, for the frames that both
    share. Frames of Python's import system are left out.
    """
    for part in build_up.parts:
        frames = part.stack[: part.shared] if only_certain else part.stack
        named = tuple(name for frame in frames if (name := _named(frame)) is not None)
        yield named or (Named(f"[{WITHOUT_STACK.get(part.kind, UNCERTAIN)}]"),), part.size


def place_text(frame: Frame) -> str:
    """Return file and line, from the package on: ``torch/jit/_trace.py:455``."""
    line = f":{frame.line}" if frame.line else ""
    return f"{shortened(printable(short_file(frame.file)), _LONGEST)}{line}"


@lru_cache(maxsize=10_000)
def _named(frame: Frame) -> Named | None:
    """Return a frame with its function and its place as the name: ``_check_trace (torch/jit/_trace.py:455)``.

    It is None for a frame of the import system.
    """
    if is_machinery(frame):
        return None
    function = shortened(printable(frame.function), _LONGEST) or "?"
    place = place_text(frame)
    return Named(f"{function} ({place})" if place else function, printable(frame.file), frame.line)
