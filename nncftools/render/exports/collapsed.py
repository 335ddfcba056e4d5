"""The build-up of the RSS peak as collapsed stacks, which flamegraph.pl and speedscope read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nncftools.render.stacks import build_up_of_peak, named_stacks

if TYPE_CHECKING:
    from nncftools.render.view import View
    from nncftools.session.session import Session

_SEPARATOR, _INSTEAD = ";", ":"


def report(session: Session, _view: View) -> str:
    """Return one line per stack, ``frame;frame bytes``, the outermost frame first and the largest stack first.

    Raises NncfToolsError when the session has no stacks.
    """
    sums: dict[str, int] = {}
    for frames, size in named_stacks(build_up_of_peak(session, "collapsed")):
        stack = _SEPARATOR.join(frame.name.replace(_SEPARATOR, _INSTEAD) for frame in frames)
        sums[stack] = sums.get(stack, 0) + size
    largest_first = sorted(sums.items(), key=lambda item: (-item[1], item[0]))
    return "".join(f"{stack} {size}\n" for stack, size in largest_first)
