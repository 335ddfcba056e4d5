"""``nncf-tools metrics`` lists what can be recorded; ``nncf-tools schema`` prints the JSON Schema of a session file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from nncftools.cli import screen
from nncftools.cli.parameters import OTHER, option
from nncftools.metrics import METRICS, Metric

if TYPE_CHECKING:
    from rich.console import RenderableType

    from nncftools.sampler.client import Offer


def metrics(
    *,
    as_json: Annotated[bool, option("--json", OTHER, "Print JSON, for scripts.")] = False,
) -> None:
    """List every metric: meaning, unit, source, cost per sample, and whether it is available here.

    \b
    Examples:
      nncf-tools metrics
      nncf-tools metrics --json
    """
    from nncftools.sampler import client

    offers = client.offers()
    facts = [_facts(metric, offers[metric.name]) for metric in METRICS.values() if metric.name in offers]
    screen.to_stdout(f"{json.dumps(facts, indent=2)}\n" if as_json else _table(facts))


def _facts(metric: Metric, offer: Offer) -> dict[str, str]:
    return {
        "name": metric.name,
        "meaning": metric.meaning,
        "unit": metric.unit,
        "kind": metric.kind,
        **offer._asdict(),
    }


def _table(facts: Sequence[dict[str, str]]) -> RenderableType:
    from nncftools.render.table import Text, grid

    table = grid(gap=2)
    table.add_column("Metric", no_wrap=True)
    table.add_column("Unit")
    table.add_column("Meaning, source, cost per sample", overflow="fold")
    for metric in facts:
        origin = f"not here: {metric['missing']}" if metric["missing"] else f"{metric['source']}, {metric['cost']}"
        table.add_row(metric["name"], metric["unit"] or "–", Text.assemble(f"{metric['meaning']}\n", (origin, "dim")))
    return table


def schema() -> None:
    """Print the JSON Schema of a session file.

    \b
    Example:
      nncf-tools schema > session.schema.json
    """
    from nncftools.session import session

    screen.to_stdout(f"{json.dumps(session.schema(), indent=2)}\n")
