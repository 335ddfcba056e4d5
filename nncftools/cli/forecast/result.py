"""A forecast and its file: what slices took, what follows for the whole model, and whether that fits."""

from __future__ import annotations

import pathlib

import msgspec

from nncftools import intake
from nncftools.analysis import forecast as analysis
from nncftools.analysis.forecast import Forecast, Slice
from nncftools.limits import needs

FORMAT = "nncf-tools-forecast"
VERSION = 1
"""1: first version (2026-11)."""
YES, SLOWLY, NO, UNSURE = "fits", "fits slowly", "does not fit", "may not fit"


class Result(msgspec.Struct, kw_only=True):
    """A forecast, as far as it went: the file ``forecast.json``; bytes, null for unknown."""

    format: str = FORMAT
    version: int = VERSION
    command: list[str]
    model: str
    layers: int
    parameters: int
    weights: int
    from_config: bool = False
    """Whether the slices had random weights."""
    added: list[str] = []
    """Options that slices got because the whole model is larger."""
    slices: list[Slice] = []
    forecast: Forecast | None = None
    """Null where slices do not say it."""
    limit: int | None = None
    """The memory that ``--for`` asks about."""
    fits: str | None = None
    """``fits``, ``fits slowly``, ``may not fit`` or ``does not fit``."""
    notes: list[str] = []

    @property
    def used(self) -> list[Slice]:
        """The slices that count, from small to large."""
        return [part for part in self.slices if not part.unused]

    @property
    def requirement(self) -> needs.Requirement | None:
        """What the whole model needs at least; None if that is not known."""
        if (known := self.forecast) is None:
            return None
        disks = {} if known.disk is None else {"argument": round(known.disk.high)}
        return needs.Requirement(round(known.floor.value), disks)

    def finish(self, limit: int | None) -> None:
        """Forecast by the slices, and judge whether that fits into a size."""
        self.forecast, self.limit = analysis.forecast(self.slices, self.layers), limit
        if self.forecast is not None and limit is not None:
            self.fits = judged(self.forecast, limit)


def judged(known: Forecast, limit: int) -> str:
    """Return whether a run fits into a limit: slowly between floor and comfortable amount."""
    if limit < known.floor.low:
        return NO
    if limit < known.floor.high or (known.floor.is_at_least and limit < known.peak.high):
        return UNSURE
    return YES if limit >= known.comfortable.value else SLOWLY


def loaded(file: pathlib.Path) -> Result | None:
    """Return a forecast from a file; None for a file of another kind."""
    try:
        found = msgspec.json.decode(intake.whole(file), type=Result)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return found if found.format == FORMAT else None
