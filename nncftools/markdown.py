"""Write Markdown and CSV: tables, and text from outside that neither renderers nor spreadsheets interpret."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from nncftools.units import printable

_SPECIAL = re.compile(r"[\\`*\[\]<|~$&]|(?<!\w)_|_(?!\w)")
"""Characters with a meaning in Markdown, HTML or mathematics; ``_`` is harmless inside a word."""
_LINKS = re.compile(r"[@#]|\bGH-|://|www\.")
"""Text that GitHub turns into a mention, a reference or a link, except in code."""

MARK = "nncf-tools put ' before some texts"
"""Name of an empty last column, which says that each ``'`` at the start of a cell was added."""
_FORMULA = re.compile(r"(?!-(?:inf|nan|[\d.]+(?:e[-+]?\d+)?)\Z)[-=+@\t\r']")
"""Matches the start of a cell that a spreadsheet would run, or whose ``'`` would be lost; never a number."""


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
    span = f"{fence}{padding}{line}{padding}{fence}".replace("|", r"\|")
    return span if line else ""


def draw_table(headings: Sequence[str], rows: Sequence[Sequence[str]], alignments: Sequence[str]) -> str:
    """Return a table whose source has aligned columns, without a newline at the end.

    ``headings`` and ``rows`` are Markdown, made by ``text`` or ``code``.
    """
    from tabulate import tabulate

    aligned = alignments if rows else None
    return tabulate(rows, headings, tablefmt="pipe", disable_numparse=True, colalign=aligned)


def csv_line(cells: Iterable[str]) -> str:
    """Return a line of a CSV file, with a ``'`` before a text that a spreadsheet would run."""
    return ",".join(map(_csv_cell, cells)) + "\n"


def _csv_cell(cell: str) -> str:
    guarded = f"'{cell}" if _FORMULA.match(cell) else cell
    quoted = guarded.replace('"', '""')
    return f'"{quoted}"' if re.search('[",\r\n]', guarded) else guarded


def draw_csv(header: Sequence[str], rows: Iterable[Mapping[str, str]]) -> str:
    """Return a CSV file; a missing cell of a row is empty.

    The last column is ``MARK`` if a cell begins with an added ``'``, or begins or ends with white space.
    """
    table = [list(header)]
    table += [[row.get(column, "") for column in header] for row in rows]
    cells = list(chain.from_iterable(table))
    if any(_FORMULA.match(cell) or cell != cell.strip() for cell in cells):
        table[0].append(MARK)
        for row in table[1:]:
            row.append("")
    return "".join(map(csv_line, table))
