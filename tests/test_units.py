from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from nncftools.units import (
    MemoryUnit,
    about_text,
    brief_size,
    cores_text,
    find_breaks,
    part_text,
    printable,
    seconds_from,
    seconds_text,
    shortened,
    size_from,
    size_text,
    unit_from,
)
from tests.made_up import MIB

TEXTS: dict[Callable[..., str], dict[Any, str]] = {
    printable: {
        "plain, ünï, 漢字, 🎉": "plain, ünï, 漢字, 🎉",
        "\x1b[31m": "\\x1b[31m",
        "a\nb\tc\r": "a\\nb\\tc\\r",
        "\x00\x7f\x9b": "\\x00\\x7f\\x9b",
        "\u202e\u2028\ufeff": "\\u202e\\u2028\\ufeff",
        "\udcff": "\\udcff",
    },
    seconds_text: {
        None: "–",
        0: "0.000 s",
        0.9994: "0.999 s",
        0.9996: "1.00 s",
        59.99: "59.99 s",
        59.999: "1 min 00.0 s",
        119.96: "2 min 00.0 s",
        205: "3 min 25.0 s",
        3599.94: "59 min 59.9 s",
        3599.99: "1 h 00 min",
        7380: "2 h 03 min",
        360_000: "100 h 00 min",
    },
    about_text: {0.5: "0.500 s", 9.876: "9.88 s", 40.91: "41 s", 300.0: "5 min 00 s", 7300: "2 h 02 min"},
    cores_text: {None: "–", 0.0: "0.00 cores", 12: "12.00 cores"},
    size_text: {
        None: "–",
        1023: "1023 B",
        1024: "1.0 KiB",
        MIB - 1: "1.0 MiB",
        2**30 - 1: "1.0 GiB",
        5000 * 2**30: "5,000.0 GiB",
    },
    brief_size: {
        0: "0 B",
        8 << 30: "8 GiB",
        11 << 28: "2.75 GiB",
        15.62 * 2**30: "15.6 GiB",
        99.97 * MIB: "100 MiB",
        9.999 * MIB: "10 MiB",
        2000 * 2**30: "2,000 GiB",
    },
}
"""By function: what is written for a value."""


@pytest.mark.parametrize(
    "write, value, text",
    [
        pytest.param(write, value, text, id=f"{write.__name__} {value!r}")
        for write, texts in TEXTS.items()
        for value, text in texts.items()
    ],
)
def test_texts(write: Callable[[object], str], value: object, text: str) -> None:
    """Signs that control a terminal are escaped; times and sizes are in the unit that fits the rounded value."""
    assert write(value) == text


@pytest.mark.parametrize(
    "text, length, expected",
    [
        ("abcdefghij", 10, "abcdefghij"),
        ("abcdefghijk", 10, "abcdef…ijk"),
        ("", 5, ""),
        ("abcdef", 2, "…f"),
    ],
)
def test_shortened(text: str, length: int, expected: str) -> None:
    """A long text is cut in its middle to exactly the length; a short one stays."""
    assert shortened(text, length) == expected


GB = 10**9


def test_factor() -> None:
    """A unit is its size in bytes; bytes in a unit are a quotient, unrounded."""
    assert [unit.factor for unit in MemoryUnit] == [1, 2**10, 2**20, 2**30, 10**3, 10**6, 10**9]
    assert MemoryUnit.KiB.of(1536) == 1.5


@pytest.mark.parametrize(
    "unit, size, text",
    [
        ("B", 0, "0"),
        ("B", 50 * GB, "50,000,000,000"),
        ("KiB", 1536, "2"),
        ("MiB", 0, "0.0"),
        ("MiB", 633.24 * MIB, "633.2"),
        ("MiB", 9_999.9 * MIB, "9,999.9"),
        ("MiB", 9_999.96 * MIB, "10,000"),
        ("MiB", -12_345 * MIB, "-12,345"),
        ("MiB", -1, "0.0"),
        ("GB", 12_345 * GB, "12,345.000"),
        ("MiB", None, "–"),
    ],
)
def test_text(unit: str, size: float | None, text: str) -> None:
    """Sizes have thousands separators and meaningful decimals, and there is no negative zero."""
    assert MemoryUnit(unit).text(size) == text


def test_label() -> None:
    """A label is the text with the unit, or a single dash for unknown."""
    assert [MemoryUnit.MiB.label(size) for size in (633.2 * MIB, None)] == ["633.2 MiB", "–"]


@pytest.mark.parametrize(
    "text, size, unit",
    [
        ("8GiB", 8 << 30, MemoryUnit.GiB),
        (" 0.5 gib ", 1 << 29, MemoryUnit.GiB),
        ("8g", 8 << 30, MemoryUnit.GiB),
        ("500 M", 500 << 20, MemoryUnit.MiB),
        ("1.5T", 3 << 39, MemoryUnit.GiB),
        ("70B", 70, MemoryUnit.B),
    ],
)
def test_size_from(text: str, size: int, unit: MemoryUnit) -> None:
    """A size is a number with its unit, in any case; a letter alone is the binary unit."""
    assert size_from(text) == (size, unit)


@pytest.mark.parametrize("text", ["", "8", "GiB", "-1GiB", "0GiB", "0.1B", "8 PiB", "200 MB/s", "9" * 400 + "B"])
def test_no_size(text: str) -> None:
    """Anything else is refused with what was expected."""
    with pytest.raises(ValueError, match=r"a size above 0 with its unit \(B, .* expected, such as 8GiB or 8G, found"):
        size_from(text)


@pytest.mark.parametrize(
    "text, seconds", [("0.5", 0.5), ("100ms", 0.1), ("0.5 s", 0.5), ("2 min", 120), ("2m", 120), ("1.5H", 5400)]
)
def test_seconds_from(text: str, seconds: float) -> None:
    """A time is a number with its unit; without a unit it is seconds."""
    assert seconds_from(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "soon", "-1", "nan", "1 2", "5 parsecs"])
def test_no_time(text: str) -> None:
    """Anything else is refused with what was expected."""
    with pytest.raises(ValueError, match=r"a time expected, such as 0.5 .seconds., 100ms or 2min, found"):
        seconds_from(text)


@pytest.mark.parametrize("text, unit", [("mib", MemoryUnit.MiB), ("G", MemoryUnit.GiB), ("KB", MemoryUnit.KB)])
def test_unit_from(text: str, unit: MemoryUnit) -> None:
    """A unit is named in any case, or by its first letter."""
    assert unit_from(text) is unit


@pytest.mark.parametrize(
    "size, unit, expected",
    [
        (1234.56 * MIB, MemoryUnit.MiB, "1,235"),
        (9.94 * MIB, MemoryUnit.MiB, "9.9"),
        (9.96 * MIB, MemoryUnit.MiB, "10"),
        (1.314 * 1024 * MIB, MemoryUnit.GiB, "1.31"),
        (123.4 * 1024 * MIB, MemoryUnit.GiB, "123"),
        (12345, MemoryUnit.B, "12,345"),
    ],
)
def test_brief(size: float, unit: MemoryUnit, expected: str) -> None:
    """Brief sizes have two or three digits, or more before the point."""
    assert unit.brief(size) == expected


@pytest.mark.parametrize(
    "part, whole, text",
    [
        (7.6 * 2**30, 8 << 30, "7.6 of 8 GiB"),
        (100 * MIB, 8 << 30, "0.1 of 8 GiB"),
        (476 * MIB, 500 * MIB, "476 of 500 MiB"),
        (0, 8 << 30, "0 of 8 GiB"),
    ],
)
def test_part_text(part: float, whole: float, text: str) -> None:
    """A part is in the unit that fits the whole."""
    assert part_text(part, whole) == text


@pytest.mark.parametrize(
    "text, width, lines",
    [
        ("RSS 305 MiB at 1.65 s", 11, ["RSS 305 MiB", "at 1.65 s"]),
        ("RSS of 305 MiB, and", 11, ["RSS of", "305 MiB,", "and"]),
        ("it took 1 min 27.0 s", 14, ["it took", "1 min 27.0 s"]),
        ("102 % of it", 4, ["102 %", "of", "it"]),
        ("Base.from_pretrained(small)", 16, ["Base.from_", "pretrained(", "small)"]),
        ("[+1.0 MiB] <- peak", 14, ["[+1.0 MiB]", "<- peak"]),
        ("x" * 9, 4, ["x" * 9]),
        ("", 4, [""]),
    ],
)
def test_folds(text: str, width: int, lines: list[str]) -> None:
    """A figure and its unit stay together; a name that is too long is broken after a sign inside of it."""
    places = [0, *find_breaks(text, width), len(text)]

    assert [text[begin:end].rstrip() for begin, end in itertools.pairwise(places)] == lines
