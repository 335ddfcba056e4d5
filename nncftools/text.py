"""Makes text from outside the program safe to display, and short.

Every layer may import this module, so it imports nothing.
"""

from __future__ import annotations


def shortened(text: str, length: int) -> str:
    """Return ``text`` shortened in the middle to ``length`` characters: beginning and end are the most informative."""
    if len(text) <= length:
        return text
    head = (length - 1) * 2 // 3
    return f"{text[:head]}…{text[len(text) - (length - 1 - head) :]}"


def printable(text: str) -> str:
    """Return ``text`` with control characters and other unprintable characters as escape sequences."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "surrogatepass").decode()
        for character in text
    )
