"""The figures of a run for github-action-benchmark: its tool ``customSmallerIsBetter``.

A document is a list of ``name``, ``unit``, ``value``, and texts that it only shows: ``range`` and ``extra``
(https://github.com/benchmark-action/github-action-benchmark). Memory is always in MiB: a history needs one unit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from nncftools.analysis.comparison import figures_of_run
from nncftools.render.exports.tracked import SEPARATOR, tracked
from nncftools.render.view import command_text
from nncftools.units import MemoryUnit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nncftools.analysis.comparison import Run
    from nncftools.render.exports.tracked import Tracked
    from nncftools.render.view import View
    from nncftools.session.session import Session

_UNIT = MemoryUnit.MiB
_DIGITS = 6


def report(session: Session, view: View) -> str:
    """Return the figures of a session; their names begin with the title, or else with the command."""
    name = view.title or command_text(session)
    return document({name: [figures_of_run(session, name, view.depth)]})


def document(groups: Mapping[str, Sequence[Run]]) -> str:
    """Return runs or groups of repeated runs by the names of their benchmarks, as JSON."""
    found = [_entry(one) for name, runs in groups.items() for one in tracked(name, runs)]
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"


def _entry(of: Tracked) -> dict[str, Any]:
    is_size = of.figure.unit == "B"
    factor = _UNIT.factor if is_size else 1
    entry: dict[str, Any] = {
        "name": f"{of.benchmark}{SEPARATOR}{of.figure.label}",
        "unit": str(_UNIT) if is_size else of.figure.unit or "times",
        "value": round(of.value / factor, _DIGITS),
    }
    if of.lower is not None and of.upper is not None:
        entry["range"] = f"{of.lower / factor:.6g} to {of.upper / factor:.6g}"
    if of.runs > 1:
        entry["extra"] = f"median of {of.runs} runs; range: the smallest and the largest"
    elif "range" in entry:
        entry["extra"] = "range: the bounds of the real peak"
    return entry
