"""Format and parse sizes, times and rates; make text from outside short and safe to display.

All other modules compute in bytes and seconds. Every layer may import this module, so the module imports little.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from nncftools.backports import StrEnum


def shortened(text: str, length: int) -> str:
    """Return ``text``, cut to ``length`` characters. The middle is cut out, because the two ends say more."""
    if len(text) <= length:
        return text
    head = (length - 1) * 2 // 3
    tail = len(text) - (length - 1 - head)
    return f"{text[:head]}…{text[tail:]}"


def printable(text: str) -> str:
    """Return ``text`` with every unprintable character, such as a control character, as an escape sequence."""
    return text if text.isprintable() else "".join(map(_escape, text))


def _escape(sign: str) -> str:
    return sign if sign.isprintable() else sign.encode("unicode_escape", "surrogatepass").decode()


_WORD = r"\s*(?:(?:\d+ (?:h|min) )?[^\s\d]?\d\S* (?:[KMG]i?B\b|[Bsh]\b|min\b|cores\b|%)\S*|<- \S+|\S+)\s*"
"""Matches a word, or a figure together with a unit."""
_END = re.compile("[-_]")
_PART = re.compile(r"[/._(,=-]*[^/._(,=-]+[/._(,=-]*|[/._(,=-]+")


def find_breaks(text: str, width: int) -> list[int]:
    """Return the indexes where ``text`` can be broken into lines.

    A line never ends between a figure and the unit. A word longer than ``width`` is broken after punctuation.
    """
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
"""Two words count as similar if their similarity is at least this value. Two words of four letters have this similarity
if they differ only in the order of two neighbouring letters."""
_FEWEST_LETTERS = 3


def nearest(word: str, known: Iterable[str], alike: float = _ALIKE) -> str:
    """Return the name in ``known`` that is most similar to ``word``; empty if no name is similar enough.

    Letter case does not matter. ``alike`` is the smallest similarity, from 0 to 1.
    """
    from difflib import SequenceMatcher

    matcher = SequenceMatcher(b=word.casefold())

    def similarity(name: str) -> float:
        matcher.set_seq1(name.casefold())
        return matcher.ratio() if matcher.real_quick_ratio() >= alike else 0.0

    best = max(known, key=similarity, default="")
    return best if similarity(best) >= alike else ""


def guess(word: str, known: Iterable[str], alike: float = _ALIKE) -> str:
    """Return the name in ``known`` that ``word`` abbreviates, or else a similar name; empty if there is none.

    For instance, ``peak`` and ``rss`` abbreviate ``peak_rss``.
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


def not_one_of(word: str, known: Iterable[str], alike: float = _ALIKE, meant: str = "") -> str:
    """Return the message that ``word`` is not in ``known``, with a proposal if a name is similar.

    ``meant`` is another word for the same thing, if known: the proposal is then similar to this word.
    """
    names = list(known)
    message = f"{word!r} is not one of {', '.join(names)}"
    near = guess(meant or word, names, alike)
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
        """Bytes in this unit."""
        return _UNITS[self][0]

    @property
    def decimals(self) -> int:
        """Number of decimals of sizes in this unit."""
        return _UNITS[self][1]

    def of(self, size: float) -> float:
        """Convert ``size`` bytes to this unit."""
        return size / self.factor

    def text(self, size: float | None) -> str:
        """Return ``size`` bytes as text without the unit: ``"1,234.5"``; a dash if ``size`` is None.

        GiB and GB have three decimals; B, KiB and KB have none. MiB and MB have one decimal up to 10,000 and none
        above.
        """
        if size is None:
            return UNKNOWN
        is_long = self.decimals == 1 and round(abs(self.of(size)), 1) >= _NO_DECIMALS_FROM
        return fixed(self.of(size), 0 if is_long else self.decimals)

    def brief(self, size: float) -> str:
        """Return ``size`` bytes as short text without the unit: ``"1,235"``, ``"6.1"``; for GiB and GB ``"1.31"``."""
        number = self.of(size)
        decimals = min(self.decimals, 2)
        digits = decimals + 1
        while decimals and round(abs(number), decimals) >= 10 ** (digits - decimals):
            decimals -= 1
        return fixed(number, decimals)

    def label(self, size: float | None) -> str:
        """Return ``size`` bytes as text with the unit: ``"633.2 MiB"``; a dash if ``size`` is None."""
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
"""Maps a unit to its size in bytes and the number of decimals."""


def fixed(number: float, decimals: int) -> str:
    """Return a number as text with ``decimals`` decimals: ``"1,234.5"``. Never returns ``"-0.0"``."""
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
    """Return an estimated duration as text. From 10 s on, seconds have no decimals: ``"41 s"``, ``"1 min 14 s"``."""
    text = seconds_text(seconds if seconds < 10 else round(seconds))  # noqa: PLR2004 — two digits
    return text.replace(".00 s", " s").replace(".0 s", " s")


def brief_seconds(seconds: float) -> str:
    """Return a duration as text. Seconds have one decimal below 10 s, and none above: ``"1.7 s"``, ``"1 min 14 s"``."""
    if round(seconds, 1) < 0.1:  # noqa: PLR2004 — one decimal would be 0
        return seconds_text(seconds)
    return f"{seconds:.1f} s" if seconds < 9.95 else about_text(max(10.0, seconds))  # noqa: PLR2004 — two digits


def time_unit(duration_s: float) -> tuple[int, str]:
    """Return the unit for a time axis as (seconds, name): minutes from 3 min on, hours from 3 h on."""
    for factor, unit in ((_HOUR, "h"), (_MINUTE, "min")):
        if duration_s >= 3 * factor:
            return factor, unit
    return 1, "s"


def size_text(size: float | None) -> str:
    """Return bytes as text in a suitable binary unit: ``"52.0 KiB"``, ``"1.5 GiB"``."""
    if size is None:
        return UNKNOWN
    unit = _fitting(size)
    return f"{size:.0f} B" if unit is MemoryUnit.B else f"{unit.of(size):,.1f} {unit}"


def _fitting(size: float) -> MemoryUnit:
    """Return the largest binary unit that is not larger than ``size``."""
    if round(size) < MemoryUnit.KiB.factor:
        return MemoryUnit.B
    for unit in (MemoryUnit.KiB, MemoryUnit.MiB):
        if round(unit.of(size), 1) < MemoryUnit.KiB.factor:
            return unit
    return MemoryUnit.GiB


def brief_size(size: float) -> str:
    """Return bytes as text in a suitable binary unit, without zeros at the end: ``"8 GiB"``, ``"2.75 GiB"``."""
    unit = _fitting(size)
    return f"{_brief(unit.of(size), 2)} {unit}"


def part_text(part: float, whole: float) -> str:
    """Return two sizes as text, in the unit that suits ``whole``: ``"7.6 of 8 GiB"``."""
    unit = _fitting(whole)
    return f"{_brief(unit.of(part), 1)} of {_brief(unit.of(whole), 2)} {unit}"


def _brief(number: float, decimals: int) -> str:
    """Return a number with at most ``decimals`` decimals and about three digits: ``"2.75"``, ``"27.5"``, ``"8"``."""
    while decimals and round(number, decimals) >= 10 ** (3 - decimals):
        decimals -= 1
    text = fixed(number, decimals)
    return text.rstrip("0").rstrip(".") if decimals else text


def count_text(number: float, noun: str) -> str:
    """Return a number with a noun in the singular or plural, such as ``1 call`` or ``2,000 processes``."""
    if number == 1:
        return f"1 {noun}"
    ending = "es" if noun.endswith("s") else "s"
    return f"{number:,.0f} {noun}{ending}"


def cores_text(cores: float | None) -> str:
    """Return a mean number of busy cores as text: ``"0.62 cores"``; a dash if None."""
    return UNKNOWN if cores is None else f"{fixed(cores, 2)} cores"


def number_text(number: float | None) -> str:
    """Return a count as text: ``"1,234"``; a dash if None."""
    return UNKNOWN if number is None else f"{number:,.0f}"


def text_of(value: float | None, unit: str) -> str:
    """Return a number as text in a suitable unit; a dash if None.

    ``unit`` is the unit of ``value``: ``"B"`` (bytes), ``"s"`` (seconds) or ``""`` (a count).
    """
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
"""Maps a spelling in lower case to (unit, factor): the spelling means ``factor`` times the unit. Includes the spellings
of `ulimit`, Docker and Java."""
_TIMES = {
    **dict.fromkeys(("", "s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("us", "µs"), 1e-6),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), float(_MINUTE)),
    **dict.fromkeys(("h", "hour", "hours"), float(_HOUR)),
    **dict.fromkeys(("d", "day", "days"), 24.0 * _HOUR),
}
"""Maps a spelling to the seconds in a unit of time. A number without a unit is in seconds."""


def unit_from(text: str) -> MemoryUnit:
    """Parse a unit, also if abbreviated to the first letter: ``"gib"``, ``"G"``. Letter case does not matter.

    Raises ValueError with the expected and the actual text.
    """
    unit, times = _SIZES.get(text.strip().casefold(), (None, 1))
    if unit is None or times != 1:
        raise ValueError(not_one_of(text, MemoryUnit, _LITTLE_ALIKE))
    return unit


def size_from(text: str) -> tuple[int, MemoryUnit]:
    """Parse a size with a unit: ``"8GiB"``, ``"8G"`` (the same), ``"1.5 MB"``. Letter case does not matter.

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
    """Return the bytes in a size such as ``"8GiB"`` or ``"1.5 MB"``. Raises ValueError."""
    return size_from(text)[0]


def seconds_from(text: str) -> float:
    """Parse a time: ``"100ms"``, ``"2 min"``, or ``"0.5"`` for seconds.

    Raises ValueError with the expected and the actual text.
    """
    match = re.fullmatch(_TIME, text.strip())
    if match is None or match[2].casefold() not in _TIMES:
        raise ValueError(f"a time expected, such as 0.5 (seconds), 100ms or 2min, found {text!r}")
    return float(match[1]) * _TIMES[match[2].casefold()]
