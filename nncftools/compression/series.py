"""The series of the picture: what the results of one kind have in common, and which of them a line joins."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from nncftools.compression.results import LOW_BITS, Group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.compression.results import Result

_PRECISION = re.compile(rf"[a-z]*(?:{LOW_BITS.pattern}|int8)")
_LEADING = {Group.LORA: "lora", Group.GPTQ: "gptq", Group.DATA_FREE: "data-free"}
"""The word of the algorithm that makes a kind; its name comes first."""


def series_name(results: Sequence[Result]) -> str:
    """Describe results of one kind: their precision, and the algorithms that all of their modes name.

    For example ``100% int4, gptq + scale estimation`` or ``mixed precision, scale estimation``.
    """
    group = results[0].group
    if group in (Group.INT8, Group.OTHER):
        return str(group)
    everywhere = set.intersection(*({*_parts(result.row.mode.casefold())} for result in results))
    first, *others = _parts(results[0].row.mode)
    algorithms = others if _PRECISION.search(first.casefold()) else [first, *others]
    shared = [name for name in algorithms if name and name.casefold() in everywhere]
    if group is Group.MIXED:
        return ", ".join([group, *([" + ".join(shared)] if shared else [])])
    word = _LEADING.get(group, "")
    shared.sort(key=lambda name: word not in name.casefold())
    if not shared or word not in shared[0].casefold():
        shared.insert(0, group)
    precision = _precision(results)
    return f"{precision}, {' + '.join(shared)}" if precision else " + ".join(shared)


def joined(results: Sequence[Result]) -> list[list[Result]]:
    """Return the results that a line joins, by growing share of int4: same algorithms, several shares.

    There is no line when two results have the same share: they differ in something else, and nothing says which of them
    belongs to it.
    """
    by_algorithms: dict[object, list[Result]] = {}
    for result in results:
        if result.row.int4 > 0:
            key = frozenset(_parts(result.row.mode.casefold())), result.row.lora_rank
            by_algorithms.setdefault(key, []).append(result)
    found = []
    for series in by_algorithms.values():
        shares = {result.row.int4 for result in series}
        if 1 < len(shares) == len(series):
            found.append(sorted(series, key=lambda result: result.row.int4))
    return found


def _parts(mode: str) -> list[str]:
    """Return what ``+`` separates: usually a precision, then algorithms."""
    return [" ".join(part.split()) for part in mode.split("+")]


def _precision(results: Sequence[Result]) -> str:
    """Return the precision that all results have for all layers; empty when they differ."""
    if any(result.row.int4 < 1 for result in results):
        return ""
    matches = [_PRECISION.search(result.row.mode.casefold()) for result in results]
    names = {match[0] if match else "int4" for match in matches}
    return f"100% {names.pop() if len(names) == 1 else '4-bit'}"
