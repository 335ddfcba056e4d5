"""Formats and parses bytes, seconds and rates, and makes text from outside safe to display, and short.

Everything inside the package is in bytes and seconds. Every layer may import this module, so it imports nothing that is
not needed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from nncftools.backports import StrEnum


def shortened(text: str, length: int) -> str:
    """Return ``text`` shortened in the middle to ``length`` characters: beginning and end are the most informative."""
    if len(text) <= length:
        return text
    head = (length - 1) * 2 // 3
    return f"{text[:head]}…{text[len(text) - (length - 1 - head) :]}"


def printable(text: str) -> str:
    """Return ``text`` with control characters and other unprintable characters as escape sequences."""
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape", "surrogatepass").decode() for sign in text
    )


_WORD = r"\s*(?:(?:\d+ (?:h|min) )?[^\s\d]?\d\S* (?:[KMG]i?B\b|[Bsh]\b|min\b|cores\b|%)\S*|<- \S+|\S+)\s*"
"""A word, or a figure with its unit."""
_END = re.compile("[-_]")
_PART = re.compile(r"[/._(,=-]*[^/._(,=-]+[/._(,=-]*|[/._(,=-]+")


def folds(text: str, width: int) -> list[int]:
    """Return where a line is broken: not between a figure and its unit; a long name is, after a sign inside of it."""
    places, used = [], 0
    for word in re.finditer(_WORD, text):
        for part in _PART.finditer(text, *word.span()) if len(word[0].rstrip()) > width else (word,):
            if used and used + len(part[0].rstrip()) > width:
                places.append(part.start())
                used = 0
            used += len(part[0])
    return places


_ALIKE = 0.75
"""Two letters in each other's place make a word of four as different as that."""
_FEWEST_LETTERS = 3


def nearest(word: str, known: Iterable[str], alike: float = _ALIKE) -> str:
    """Return the name in ``known`` that is most like a mistyped word, whatever the case; empty if none is near.

    Of several that are equally like it, it is the first. ``alike`` is how similar it must be, from 0 to 1.
    """
    from difflib import SequenceMatcher

    matcher = SequenceMatcher(b=word.casefold())
    found, best = "", alike
    for name in known:
        matcher.set_seq1(name.casefold())
        if matcher.real_quick_ratio() >= best and (ratio := matcher.ratio()) >= best and (ratio > best or not found):
            found, best = name, ratio
    return found


def guess(word: str, known: Iterable[str], alike: float = _ALIKE) -> str:
    """Return the name in ``known`` that a word abbreviates, or that is near it; empty if there is none.

    ``peak`` and ``rss`` abbreviate ``peak_rss``.
    """
    names, folded = list(known), word.casefold()
    longer = [name for name in names if name.casefold().startswith(folded) or _END.split(name, 1)[-1] == folded]
    if longer and len(word) >= _FEWEST_LETTERS:
        return nearest(word, longer, 0.0)
    return nearest(word, names, alike)


def not_one_of(word: str, known: Iterable[str], alike: float = _ALIKE) -> str:
    """Return the message for a word that is none of ``known``, with the one that was probably meant."""
    names = list(known)
    near = guess(word, names, alike)
    return f"{word!r} is not one of {', '.join(names)}" + (f"; did you mean {near}?" if near else "")


class MemoryUnit(StrEnum):
    """A unit of memory; ``factor`` is its size in bytes."""

    B = "B"
    KiB = "KiB"
    MiB = "MiB"
    GiB = "GiB"
    KB = "KB"
    MB = "MB"
    GB = "GB"

    @property
    def factor(self) -> int:
        """Bytes in one unit."""
        return _UNITS[self][0]

    @property
    def decimals(self) -> int:
        """Digits behind the point of a size in this unit."""
        return _UNITS[self][1]

    def of(self, size: float) -> float:
        """Return ``size`` bytes in this unit."""
        return size / self.factor

    def text(self, size: float | None) -> str:
        """Return ``size`` bytes as text without the unit: ``"1,234.5"``, or a dash for unknown.

        One decimal up to 10,000 and none beyond; three decimals for GiB and GB, none for bytes.
        """
        if size is None:
            return UNKNOWN
        is_long = self.decimals == 1 and round(abs(self.of(size)), 1) >= _NO_DECIMALS_FROM
        return fixed(self.of(size), 0 if is_long else self.decimals)

    def brief(self, size: float) -> str:
        """Return ``size`` bytes as text without needless digits: ``"1,235"``, ``"6.1"``; in GiB and GB ``"1.31"``."""
        value, decimals = abs(self.of(size)), self.decimals
        if decimals == 1:
            decimals = 1 if value < 9.95 else 0  # noqa: PLR2004 — two digits
        elif decimals:
            decimals = 2 if value < 9.995 else 1 if value < 99.95 else 0  # noqa: PLR2004 — three digits
        return fixed(self.of(size), decimals)

    def label(self, size: float | None) -> str:
        """Return ``size`` bytes as text with the unit: ``"633.2 MiB"``, or a dash for unknown."""
        return UNKNOWN if size is None else f"{self.text(size)} {self}"


UNKNOWN = "–"
_NO_DECIMALS_FROM = 10_000
_MINUTE = 60
_HOUR = 3600
_UNITS = {
    MemoryUnit.B: (1, 0),
    MemoryUnit.KiB: (2**10, 0),
    MemoryUnit.MiB: (2**20, 1),
    MemoryUnit.GiB: (2**30, 3),
    MemoryUnit.KB: (10**3, 0),
    MemoryUnit.MB: (10**6, 1),
    MemoryUnit.GB: (10**9, 3),
}
"""Bytes in one unit, and the decimals of a size in it."""


def fixed(number: float, decimals: int) -> str:
    """Return a number as text with that many decimals: ``"1,234.5"``. What rounds to zero has no sign."""
    text = f"{number:,.{decimals}f}"
    return text if text.strip("-0.,") else text.removeprefix("-")


def seconds_text(seconds: float | None) -> str:
    """Return a duration as text: ``"0.103 s"``, ``"12.31 s"``, ``"3 min 25.0 s"``, ``"2 h 03 min"``."""
    if seconds is None:
        return UNKNOWN
    if round(seconds, 3) < 1:
        return f"{seconds:.3f} s"
    if round(seconds, 2) < _MINUTE:
        return f"{seconds:.2f} s"
    if round(seconds, 1) < _HOUR:
        minutes, tenths = divmod(round(seconds * 10), _MINUTE * 10)
        return f"{minutes} min {tenths / 10:04.1f} s"
    hours, minutes = divmod(round(seconds / _MINUTE), _MINUTE)
    return f"{hours} h {minutes:02d} min"


def about_text(seconds: float) -> str:
    """Return an estimated duration as text, from 10 s on in whole seconds: ``"41 s"``, ``"1 min 14 s"``."""
    return seconds_text(seconds if seconds < 10 else round(seconds)).replace(".00 s", " s").replace(".0 s", " s")  # noqa: PLR2004 — two digits


def brief_seconds(seconds: float) -> str:
    """Return a duration as text with one decimal up to 10 s, then in whole seconds: ``"1.7 s"``, ``"1 min 14 s"``."""
    if round(seconds, 1) < 0.1:  # noqa: PLR2004 — one decimal would be 0
        return seconds_text(seconds)
    return f"{seconds:.1f} s" if seconds < 9.95 else about_text(max(10.0, seconds))  # noqa: PLR2004 — two digits


def time_unit(duration_s: float) -> tuple[int, str]:
    """Return the unit of a time axis as its seconds and its name: minutes or hours when the duration has three."""
    units = ((_HOUR, "h"), (_MINUTE, "min"))
    return next(((factor, unit) for factor, unit in units if duration_s >= 3 * factor), (1, "s"))


def size_text(size: float | None) -> str:
    """Return bytes as text in the best-fitting binary unit: ``"52.0 KiB"``, ``"1.5 GiB"``."""
    if size is None:
        return UNKNOWN
    unit = _fitting(size)
    return f"{size:.0f} B" if unit is MemoryUnit.B else f"{unit.of(size):,.1f} {unit}"


def _fitting(size: float) -> MemoryUnit:
    """Return the largest binary unit of which there is at least one."""
    if round(size) < MemoryUnit.KiB.factor:
        return MemoryUnit.B
    smaller = (MemoryUnit.KiB, MemoryUnit.MiB)
    return next((unit for unit in smaller if round(unit.of(size), 1) < MemoryUnit.KiB.factor), MemoryUnit.GiB)


def brief_size(size: float) -> str:
    """Return bytes as text in the best-fitting binary unit without needless digits: ``"8 GiB"``, ``"2.75 GiB"``."""
    unit = _fitting(size)
    return f"{_brief(unit.of(size), 2)} {unit}"


def part_text(part: float, whole: float) -> str:
    """Return bytes as a part of others, in the unit that fits these best: ``"7.6 of 8 GiB"``."""
    unit = _fitting(whole)
    return f"{_brief(unit.of(part), 1)} of {_brief(unit.of(whole), 2)} {unit}"


def _brief(number: float, decimals: int) -> str:
    """Return a number with three digits at most, and without zeros behind the point."""
    most = min(decimals, 2 if number < 9.995 else 1 if number < 99.95 else 0)  # noqa: PLR2004 — three digits
    return fixed(number, most).rstrip("0").rstrip(".") if most else fixed(number, 0)


def cores_text(cores: float | None) -> str:
    """Return CPU time per time as text: ``"0.62 cores"``, or a dash for unknown; a core that is always busy is 1."""
    return UNKNOWN if cores is None else f"{fixed(cores, 2)} cores"


def number_text(number: float | None) -> str:
    """Return a count as text: ``"1,234"``, or a dash for unknown."""
    return UNKNOWN if number is None else f"{number:,.0f}"


def text_of(value: float | None, unit: str) -> str:
    """Return a figure as text in the best-fitting unit; its own unit is ``"B"``, ``"s"`` or ``""``."""
    return {"B": size_text, "s": seconds_text}.get(unit, number_text)(value)


_LITTLE_ALIKE = 0.5
_NUMBER = r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_SIZE = rf"{_NUMBER}\s*([A-Za-z]+)"
_TIME = rf"{_NUMBER}\s*([A-Za-zµ]*)"
_SHORT = {"K": MemoryUnit.KiB, "M": MemoryUnit.MiB, "G": MemoryUnit.GiB}
"""Units as `ulimit`, Docker and Java write them."""
_SIZES = {unit.casefold(): (unit, 1) for unit in MemoryUnit} | {
    **{name.casefold(): (unit, 1) for name, unit in _SHORT.items()},
    **dict.fromkeys(("t", "tib"), (MemoryUnit.GiB, 2**10)),
    "tb": (MemoryUnit.GB, 10**3),
}
_TIMES = {
    **dict.fromkeys(("", "s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("us", "µs"), 1e-6),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), float(_MINUTE)),
    **dict.fromkeys(("h", "hour", "hours"), float(_HOUR)),
    **dict.fromkeys(("d", "day", "days"), 24.0 * _HOUR),
}
"""Seconds in a unit of time; without a unit, a number is seconds."""


def unit_from(text: str) -> MemoryUnit:
    """Return the unit that a text names, in any case, also by its first letter: ``"gib"``, ``"G"``.

    Raises ValueError, which says what was expected and what was found.
    """
    name = text.strip()
    unit = next((each for each in MemoryUnit if each.casefold() == name.casefold()), _SHORT.get(name.upper()))
    if unit is None:
        raise ValueError(not_one_of(text, MemoryUnit, _LITTLE_ALIKE))
    return unit


def size_from(text: str) -> tuple[int, MemoryUnit]:
    """Parse a size with its unit, in any case: ``"8GiB"``, ``"8G"`` (the same), ``"1.5 MB"``.

    Returns the bytes and the unit. Raises ValueError, which says what was expected and what was found.
    """
    match = re.fullmatch(_SIZE, text.strip())
    unit, times = (None, 1) if match is None else _SIZES.get(match[2].casefold(), (None, 1))
    size = math.inf if match is None or unit is None else float(match[1]) * unit.factor * times
    if unit is None or not math.isfinite(size) or round(size) <= 0:
        expected = f"a size above 0 with its unit ({', '.join(MemoryUnit)}) expected, such as 8GiB or 8G"
        raise ValueError(f"{expected}, found {text!r}")
    return round(size), unit


def bytes_from(text: str) -> int:
    """Parse a size as ``size_from`` does, and return only the bytes. Raises ValueError."""
    return size_from(text)[0]


def seconds_from(text: str) -> float:
    """Parse a time, in seconds without a unit: ``"0.5"``, ``"100ms"``, ``"2 min"``.

    Raises ValueError, which says what was expected and what was found.
    """
    match = re.fullmatch(_TIME, text.strip())
    factor = None if match is None else _TIMES.get(match[2].casefold())
    if match is None or factor is None:
        raise ValueError(f"a time expected, such as 0.5 (seconds), 100ms or 2min, found {text!r}")
    return float(match[1]) * factor
