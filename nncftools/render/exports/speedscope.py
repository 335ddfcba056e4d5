"""The build-up of the RSS peak, and of the peaks of operations, for speedscope.

The format: https://www.speedscope.app/file-format-schema.json
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from nncftools.analysis.build_up import Moment, build_ups
from nncftools.analysis.timeline import timeline
from nncftools.render.operations import listed, without_small
from nncftools.render.stacks import build_up_of_peak, named_stacks
from nncftools.render.view import command_text
from nncftools.units import printable, seconds_text, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nncftools.analysis.build_up import BuildUp
    from nncftools.render.operations import Listed
    from nncftools.render.stacks import Named
    from nncftools.render.view import View
    from nncftools.session.operation import Bracket
    from nncftools.session.session import Session

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_NAME = 200
_MOST_OPERATIONS = 10


def report(session: Session, view: View) -> bytes:
    """Return the profiles in UTF-8, in bytes of memory: the peak, what of it is certain, and each operation's own peak.

    Raises NncfToolsError when the session has no stacks.
    """
    peak = build_up_of_peak(session, "speedscope")
    frames = _Frames()
    profiles = [_profile("Peak", peak, frames), _profile("Peak, what is certain", peak, frames, only_certain=True)]
    operations = _largest(without_small(listed(timeline(session.operations, view.depth), session), session))
    moments = [Moment(of.from_s, of.to_s, round(of.low)) for _, of in operations]
    for (one, _), found in zip(operations, build_ups(session, moments), strict=True):
        if found is not None:
            profiles.append(_profile(f"{one.number} {one.title}", found, frames))
    document = {
        "$schema": _SCHEMA,
        "exporter": f"nncf-tools {session.tool_version}".rstrip(),
        "name": shortened(printable(view.title) or command_text(session), _NAME),
        "activeProfileIndex": 0,
        "shared": {"frames": frames.found},
        "profiles": profiles,
    }
    return msgspec.json.encode(document) + b"\n"


class _Frames:
    """Gives each frame its place in the list that all profiles share."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []
        self._places: dict[Named, int] = {}

    def place_of(self, frame: Named) -> int:
        """Return the place of a frame, which is added when it is new."""
        if frame not in self._places:
            self._places[frame] = len(self.found)
            facts = {"name": frame.name, "file": frame.file, "line": frame.line}
            self.found.append({key: value for key, value in facts.items() if value})
        return self._places[frame]


def _profile(name: str, of: BuildUp, frames: _Frames, *, only_certain: bool = False) -> dict[str, Any]:
    sums: dict[tuple[int, ...], int] = {}
    for named, size in named_stacks(of, only_certain=only_certain):
        stack = tuple(map(frames.place_of, named))
        sums[stack] = sums.get(stack, 0) + size
    return {
        "type": "sampled",
        "name": f"{shortened(printable(name), _NAME)}, at {seconds_text(of.at_s)}",
        "unit": "bytes",
        "startValue": 0,
        "endValue": sum(sums.values()),
        "samples": list(sums),
        "weights": list(sums.values()),
    }


def _largest(every: Iterable[Listed]) -> list[tuple[Listed, Bracket]]:
    """Return the operations with the largest peaks, in the order of the table, and these peaks."""
    known = [(one, peak) for one in every if (peak := one.operation.of("rss").peak) is not None]
    known.sort(key=lambda found: -found[1].low)
    return sorted(known[:_MOST_OPERATIONS], key=lambda found: found[0].number)
