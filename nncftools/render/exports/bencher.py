"""Bencher Metric Format: the figures of a run for the history that Bencher keeps.

A document maps each benchmark to its measures, and each measure to ``value`` and, where known, ``lower_value`` and
``upper_value`` (https://bencher.dev/docs/reference/bencher-metric-format). It has no units: all
is in bytes and seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from nncftools.analysis.comparison import figures_of_run
from nncftools.render.exports.tracked import tracked
from nncftools.render.view import command_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nncftools.analysis.comparison import Run
    from nncftools.render.exports.tracked import Tracked
    from nncftools.render.view import View
    from nncftools.session.session import Session


def report(session: Session, view: View) -> str:
    """Return the figures of a session; the benchmark is called as the title, or else as the command."""
    name = view.title or command_text(session)
    return document({name: [figures_of_run(session, name, view.depth)]})


def document(groups: Mapping[str, Sequence[Run]]) -> str:
    """Return runs or groups of repeated runs by the names of their benchmarks, as JSON."""
    found: dict[str, dict[str, Any]] = {}
    for name, runs in groups.items():
        for one in tracked(name, runs):
            found.setdefault(one.benchmark, {})[_slug(one.figure.name)] = _metric(one)
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"


def _metric(of: Tracked) -> dict[str, float]:
    bounds = {"lower_value": of.lower, "upper_value": of.upper}
    return {"value": of.value, **{key: value for key, value in bounds.items() if value is not None}}


def _slug(name: str) -> str:
    """Return the name of a measure: ``peak-rss``, ``peak-npu-memory-npu0``."""
    return "".join(character if character.isalnum() else "-" for character in name)[:64]
