from __future__ import annotations

import pytest

from nncftools.units import printable, shortened


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain, ünï, 漢字, 🎉", "plain, ünï, 漢字, 🎉"),
        ("\x1b[31m", "\\x1b[31m"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x00\x7f\x9b", "\\x00\\x7f\\x9b"),
        ("\u202e\u2028\ufeff", "\\u202e\\u2028\\ufeff"),
        ("\udcff", "\\udcff"),
        ("", ""),
    ],
)
def test_printable(text: str, expected: str) -> None:
    """Invisible characters, and those that control a terminal, are escaped; everything else stays."""
    assert printable(text) == expected


@pytest.mark.parametrize(
    ("text", "length", "expected"),
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
