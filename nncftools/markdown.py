"""Writes Markdown and CSV: tables, and text from outside that neither renderers nor spreadsheets interpret."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from nncftools.units import printable

_SPECIAL = re.compile(r"[\\`*\[\]<|~$&]|(?<!\w)_|_(?!\w)")
"""What has a meaning in Markdown, HTML or mathematics; ``_`` is harmless inside a word."""
_LINKS = re.compile(r"[@#]|\bGH-|://|www\.")
"""What GitHub turns into a mention, a reference or a link, except in code."""

MARK = "nncf-tools put ' before some texts"
"""The name of an empty last column: each ``'`` at the beginning of a cell of this CSV file was added."""
_FORMULA = re.compile(r"(?!-(?:inf|nan|[\d.]+(?:e[-+]?\d+)?)\Z)[-=+@\t\r']")
"""The beginning of a cell that a spreadsheet runs, or of one that would lose its ``'``; not of a number."""


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


def csv_line(cells: Iterable[str]) -> str:
    """Return a line of a CSV file, in which a ``'`` stands before a text that a spreadsheet would run."""
    return ",".join(map(_csv_cell, cells)) + "\n"


def _csv_cell(cell: str) -> str:
    guarded = f"'{cell}" if _FORMULA.match(cell) else cell
    quoted = guarded.replace('"', '""')
    return f'"{quoted}"' if re.search('[",\r\n]', guarded) else guarded


def draw_csv(header: Sequence[str], rows: Iterable[Mapping[str, str]]) -> str:
    """Return a CSV file; a cell that a row lacks is empty.

    The last column is ``MARK`` if a cell begins with an added ``'``, or with white space, or ends with it.
    """
    table = [header, *([row.get(column, "") for column in header] for row in rows)]
    if any(_FORMULA.match(cell) or cell != cell.strip() for row in table for cell in row):
        table = [[*row, MARK if row is header else ""] for row in table]
    return "".join(map(csv_line, table))
