"""Format and parse bytes, seconds and rates, and make text from outside short and safe to display.

The package itself computes only in bytes and seconds. Every layer may import this module, so the module imports little.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from nncftools.backports import StrEnum


def shortened(text: str, length: int) -> str:
    """Return ``text`` shortened in the middle to ``length`` characters: beginning and end are most informative."""
    if len(text) <= length:
        return text
    head = (length - 1) * 2 // 3
    tail = len(text) - (length - 1 - head)
    return f"{text[:head]}…{text[tail:]}"


def printable(text: str) -> str:
    """Return ``text`` with control characters and other unprintable characters as escape sequences."""
    return text if text.isprintable() else "".join(map(_escape, text))


def _escape(sign: str) -> str:
    return sign if sign.isprintable() else sign.encode("unicode_escape", "surrogatepass").decode()


_WORD = r"\s*(?:(?:\d+ (?:h|min) )?[^\s\d]?\d\S* (?:[KMG]i?B\b|[Bsh]\b|min\b|cores\b|%)\S*|<- \S+|\S+)\s*"
"""A word, or a figure with a unit."""
_END = re.compile("[-_]")
_PART = re.compile(r"[/._(,=-]*[^/._(,=-]+[/._(,=-]*|[/._(,=-]+")


def find_breaks(text: str, width: int) -> list[int]:
    """Return where to break a line: never between a figure and its unit, in a long name only after punctuation."""
    places = []
    used = 0
    for word in re.finditer(_WORD, text):
        is_long = len(word[0].rstrip()) > width
        for part in _PART.finditer(text, *word.span()) if is_long else (word,):
            if used and used + len(part[0].rstrip()) > width:
                places.append(part.start())
                used = 0
            used += len(part[0])
    return places


_ALIKE = 0.75
"""The similarity of a word of four letters with two swapped letters."""
_FEWEST_LETTERS = 3


def nearest(word: str, known: Iterable[str], alike: float = _ALIKE) -> str:
    """Return the name in ``known`` that is most similar to a mistyped word in any case; empty if none is similar.

    ``alike`` is the least similarity, from 0 to 1.
    """
    from difflib import SequenceMatcher

    matcher = SequenceMatcher(b=word.casefold())

    def similarity(name: str) -> float:
        matcher.set_seq1(name.casefold())
        return matcher.ratio() if matcher.real_quick_ratio() >= alike else 0.0

    best = max(known, key=similarity, default="")
    return best if similarity(best) >= alike else ""


def guess(word: str, known: Iterable[str], alike: float = _ALIKE) -> str:
    """Return the name in ``known`` that a word abbreviates, or that is similar; empty for none.

    ``peak`` and ``rss`` abbreviate ``peak_rss``.
    """
    names = list(known)
    folded = word.casefold()

    def is_longer(name: str) -> bool:
        end = _END.split(name, 1)[-1]
        return end == folded or name.casefold().startswith(folded)

    longer = list(filter(is_longer, names))
    if longer and len(word) >= _FEWEST_LETTERS:
        return nearest(word, longer, 0.0)
    return nearest(word, names, alike)


def not_one_of(word: str, known: Iterable[str], alike: float = _ALIKE) -> str:
    """Return the message for a word that is none of ``known``, with the name that was probably meant."""
    names = list(known)
    message = f"{word!r} is not one of {', '.join(names)}"
    near = guess(word, names, alike)
    return f"{message}; did you mean {near}?" if near else message


class MemoryUnit(StrEnum):
    """A unit of memory; ``factor`` is the size in bytes."""

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
        """Digits after the point of a size in this unit."""
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
        number = self.of(size)
        decimals = min(self.decimals, 2)
        digits = decimals + 1
        while decimals and round(abs(number), decimals) >= 10 ** (digits - decimals):
            decimals -= 1
        return fixed(number, decimals)

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
"""Bytes in each unit, and the decimals of a size in this unit."""


def fixed(number: float, decimals: int) -> str:
    """Return a number as text with a number of decimals: ``"1,234.5"``. A number that rounds to zero has no sign."""
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
    text = seconds_text(seconds if seconds < 10 else round(seconds))  # noqa: PLR2004 — two digits
    return text.replace(".00 s", " s").replace(".0 s", " s")


def brief_seconds(seconds: float) -> str:
    """Return a duration as text with one decimal up to 10 s, then in whole seconds: ``"1.7 s"``, ``"1 min 14 s"``."""
    if round(seconds, 1) < 0.1:  # noqa: PLR2004 — one decimal would be 0
        return seconds_text(seconds)
    return f"{seconds:.1f} s" if seconds < 9.95 else about_text(max(10.0, seconds))  # noqa: PLR2004 — two digits


def time_unit(duration_s: float) -> tuple[int, str]:
    """Return a time axis's unit (seconds and name): minutes from 3 min on, hours from 3 h on."""
    for factor, unit in ((_HOUR, "h"), (_MINUTE, "min")):
        if duration_s >= 3 * factor:
            return factor, unit
    return 1, "s"


def size_text(size: float | None) -> str:
    """Return bytes as text in the best-fitting binary unit: ``"52.0 KiB"``, ``"1.5 GiB"``."""
    if size is None:
        return UNKNOWN
    unit = _fitting(size)
    return f"{size:.0f} B" if unit is MemoryUnit.B else f"{unit.of(size):,.1f} {unit}"


def _fitting(size: float) -> MemoryUnit:
    """Return the largest binary unit that is not above a size."""
    if round(size) < MemoryUnit.KiB.factor:
        return MemoryUnit.B
    for unit in (MemoryUnit.KiB, MemoryUnit.MiB):
        if round(unit.of(size), 1) < MemoryUnit.KiB.factor:
            return unit
    return MemoryUnit.GiB


def brief_size(size: float) -> str:
    """Return bytes as text in the best-fitting binary unit without needless digits: ``"8 GiB"``, ``"2.75 GiB"``."""
    unit = _fitting(size)
    return f"{_brief(unit.of(size), 2)} {unit}"


def part_text(part: float, whole: float) -> str:
    """Return a part and a whole in the best-fitting unit of the whole: ``"7.6 of 8 GiB"``."""
    unit = _fitting(whole)
    return f"{_brief(unit.of(part), 1)} of {_brief(unit.of(whole), 2)} {unit}"


def _brief(number: float, decimals: int) -> str:
    """Return a number with three digits at most, and without zeros at the end of decimals."""
    while decimals and round(number, decimals) >= 10 ** (3 - decimals):
        decimals -= 1
    text = fixed(number, decimals)
    return text.rstrip("0").rstrip(".") if decimals else text


def cores_text(cores: float | None) -> str:
    """Return an average number of busy cores as text: ``"0.62 cores"``, or a dash for unknown."""
    return UNKNOWN if cores is None else f"{fixed(cores, 2)} cores"


def number_text(number: float | None) -> str:
    """Return a count as text: ``"1,234"``, or a dash for unknown."""
    return UNKNOWN if number is None else f"{number:,.0f}"


def text_of(value: float | None, unit: str) -> str:
    """Return a figure in ``"B"``, ``"s"`` or ``""`` as text in the best-fitting unit."""
    formatters = {"B": size_text, "s": seconds_text}
    return formatters.get(unit, number_text)(value)


_LITTLE_ALIKE = 0.5
_NUMBER = r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_SIZE = rf"{_NUMBER}\s*([A-Za-z]+)"
_TIME = rf"{_NUMBER}\s*([A-Za-zµ]*)"
_SIZES = {unit.casefold(): (unit, 1) for unit in MemoryUnit} | {
    "k": (MemoryUnit.KiB, 1),
    "m": (MemoryUnit.MiB, 1),
    "g": (MemoryUnit.GiB, 1),
    "t": (MemoryUnit.GiB, 2**10),
    "tib": (MemoryUnit.GiB, 2**10),
    "tb": (MemoryUnit.GB, 10**3),
}
"""By lower-case spelling: our unit, and the number of our units; with the spellings of `ulimit`, Docker and Java."""
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
    """Parse a unit in any case, also by the first letter: ``"gib"``, ``"G"``.

    Raises ValueError with the expected and the actual text.
    """
    unit, times = _SIZES.get(text.strip().casefold(), (None, 1))
    if unit is None or times != 1:
        raise ValueError(not_one_of(text, MemoryUnit, _LITTLE_ALIKE))
    return unit


def size_from(text: str) -> tuple[int, MemoryUnit]:
    """Parse a size with a unit, in any case: ``"8GiB"``, ``"8G"`` (the same), ``"1.5 MB"``.

    Returns the bytes and the unit. Raises ValueError with the expected and the actual text.
    """
    match = re.fullmatch(_SIZE, text.strip())
    if match is not None and match[2].casefold() in _SIZES:
        unit, times = _SIZES[match[2].casefold()]
        size = float(match[1]) * unit.factor * times
        if math.isfinite(size) and round(size) > 0:
            return round(size), unit
    expected = f"a size above 0 with its unit ({', '.join(MemoryUnit)}) expected, such as 8GiB or 8G"
    raise ValueError(f"{expected}, found {text!r}")


def bytes_from(text: str) -> int:
    """Parse a size like ``size_from``, and return only the bytes. Raises ValueError."""
    return size_from(text)[0]


def seconds_from(text: str) -> float:
    """Parse a time, in seconds without a unit: ``"0.5"``, ``"100ms"``, ``"2 min"``.

    Raises ValueError with the expected and the actual text.
    """
    match = re.fullmatch(_TIME, text.strip())
    if match is None or match[2].casefold() not in _TIMES:
        raise ValueError(f"a time expected, such as 0.5 (seconds), 100ms or 2min, found {text!r}")
    return float(match[1]) * _TIMES[match[2].casefold()]
