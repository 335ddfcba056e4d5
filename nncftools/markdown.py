"""Writes Markdown: tables, and text from outside that no renderer takes for markup."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nncftools.units import printable

_SPECIAL = re.compile(r"[\\`*\[\]<|~$&]|(?<!\w)_|_(?!\w)")
"""What has a meaning in Markdown, HTML or mathematics; ``_`` is harmless inside a word."""
_LINKS = re.compile(r"[@#]|\bGH-|://|www\.")
"""What GitHub turns into a mention, a reference or a link, except in code."""


def text(plain: str) -> str:
    """Return ``plain`` escaped for a paragraph or a cell, as one line."""
    line = printable(" ".join(plain.split()))
    return code(line) if _LINKS.search(line) else _SPECIAL.sub(r"\\\g<0>", line)


def code(plain: str) -> str:
    """Return a code span that shows ``plain`` in a paragraph or a cell."""
    line = printable(" ".join(plain.split()))
    longest = max(map(len, re.findall("`+", line)), default=0)
    fence = "`" * (longest + 1)
    padding = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{padding}{line}{padding}{fence}".replace("|", r"\|") if line else ""


def draw_table(headings: Sequence[str], rows: Sequence[Sequence[str]], alignments: Sequence[str]) -> str:
    """Return a table, whose columns are aligned in the source, too, without a newline at its end.

    ``headings`` and ``rows`` are Markdown, made by ``text`` or ``code``.
    """
    from tabulate import tabulate

    aligned = alignments if rows else None
    return tabulate(rows, headings, tablefmt="pipe", disable_numparse=True, colalign=aligned)
