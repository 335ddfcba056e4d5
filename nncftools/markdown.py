"""Write tables as Markdown and CSV. Text from outside cannot become Markdown syntax or a spreadsheet formula."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from nncftools.units import printable

_SPECIAL = re.compile(r"[\\`*\[\]<|~$&]|(?<!\w)_|_(?!\w)")
"""Characters with a meaning in Markdown, HTML or mathematics. The character ``_`` is included only at the start or end
of a word."""
_LINKS = re.compile(r"[@#]|\bGH-|://|www\.")
"""Matches text that GitHub would turn into a mention, a reference or a link. GitHub does not do this inside a code
span.
"""

MARK = "nncf-tools put ' before some texts"
"""Heading of an additional last column. The heading tells the reader that nncf-tools put a ``'`` at the start of some
cells. The cells of the column are empty.
"""
_FORMULA = re.compile(r"(?!-(?:inf|nan|[\d.]+(?:e[-+]?\d+)?)\Z)[-=+@\t\r']")
"""Matches the start of a cell that a spreadsheet would run as a formula, and a ``'`` that a spreadsheet would drop.
Never matches a number."""


def text(plain: str) -> str:
    """Return ``plain`` as a single line of Markdown, escaped for a paragraph or a cell."""
    line = printable(" ".join(plain.split()))
    return code(line) if _LINKS.search(line) else _SPECIAL.sub(r"\\\g<0>", line)


def code(plain: str) -> str:
    """Return ``plain`` as a code span, for a paragraph or a cell."""
    line = printable(" ".join(plain.split()))
    longest = max(map(len, re.findall("`+", line)), default=0)
    fence = "`" * (longest + 1)
    padding = " " if line.startswith("`") or line.endswith("`") else ""
    span = f"{fence}{padding}{line}{padding}{fence}".replace("|", r"\|")
    return span if line else ""


def draw_table(headings: Sequence[str], rows: Sequence[Sequence[str]], alignments: Sequence[str]) -> str:
    """Return a Markdown table with aligned columns, without a line break at the end.

    ``headings`` and ``rows`` are Markdown, made by ``text`` or ``code``.
    """
    from tabulate import tabulate

    aligned = alignments if rows else None
    return tabulate(rows, headings, tablefmt="pipe", disable_numparse=True, colalign=aligned)


def csv_line(cells: Iterable[str]) -> str:
    """Return a line of a CSV file. A cell that a spreadsheet would run as a formula gets a ``'`` at the start."""
    return ",".join(map(_csv_cell, cells)) + "\n"


def _csv_cell(cell: str) -> str:
    guarded = f"'{cell}" if _FORMULA.match(cell) else cell
    quoted = guarded.replace('"', '""')
    return f'"{quoted}"' if re.search('[",\r\n]', guarded) else guarded


def draw_csv(header: Sequence[str], rows: Iterable[Mapping[str, str]]) -> str:
    """Return a CSV file; a cell that a row lacks is empty.

    Cells that a spreadsheet would run as formulas get a ``'`` at the start (see ``csv_line``). If there is any such
    cell, or a cell with white space at the start or end, an empty column with the heading ``MARK`` is added at the end.
    If nncf-tools reads a file with this column, nncf-tools removes each added ``'`` and keeps white space.
    """
    table = [list(header)]
    table += [[row.get(column, "") for column in header] for row in rows]
    cells = list(chain.from_iterable(table))
    if any(_FORMULA.match(cell) or cell != cell.strip() for cell in cells):
        table[0].append(MARK)
        for row in table[1:]:
            row.append("")
    return "".join(map(csv_line, table))
