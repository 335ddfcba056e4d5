"""Text from outside made harmless and short.

The ground floor: it uses nothing but the language.
"""

from __future__ import annotations


def shortened(text: str, length: int) -> str:
    """Return ``text`` cut in the middle to ``length`` characters: its beginning and its end say most."""
    if len(text) <= length:
        return text
    head = (length - 1) * 2 // 3
    return f"{text[:head]}…{text[len(text) - (length - 1 - head) :]}"


def printable(text: str) -> str:
    """Return ``text`` with control characters, and whatever else does not show, written out as escapes."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "surrogatepass").decode()
        for character in text
    )
