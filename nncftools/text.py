"""Makes text from outside the program safe to display, and short.

Every layer may import this module, so it imports nothing that is not needed.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


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


def nearest(word: str, known: Iterable[str], alike: float = 0.6) -> str:
    """Return the one of ``known`` that was probably meant by ``word``, whatever its case; empty if none is near.

    ``alike`` is how similar it must be, from 0 to 1.
    """
    from difflib import get_close_matches

    by_folded = {name.casefold(): name for name in known}
    near = get_close_matches(word.casefold(), by_folded, n=1, cutoff=alike)
    return by_folded[near[0]] if near else ""


def not_one_of(word: str, known: Iterable[str], alike: float = 0.6) -> str:
    """Return the message for a word that is none of ``known``, with the one that was probably meant."""
    names = list(known)
    meant = nearest(word, names, alike)
    return f"{word!r} is not one of {', '.join(names)}" + (f"; did you mean {meant}?" if meant else "")
