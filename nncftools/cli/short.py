"""Short subcommands that read no recording: ``nncf-tools mark``, ``metrics`` and ``schema``."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from nncftools.cli import screen
from nncftools.cli.parameters import OTHER, argument, option
from nncftools.errors import NncfToolsError, UsageError
from nncftools.marks.line import VARIABLE, open_log
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

    offers = client.list_offers()
    metrics_here = [metric for metric in METRICS.values() if metric.name in offers]
    facts = [_describe(metric, offers[metric.name]) for metric in metrics_here]
    screen.to_stdout(f"{json.dumps(facts, indent=2)}\n" if as_json else _make_table(facts))


def _describe(metric: Metric, offer: Offer) -> dict[str, str]:
    return {
        "name": metric.name,
        "meaning": metric.meaning,
        "unit": metric.unit,
        "kind": metric.kind,
        **offer._asdict(),
    }


def _make_table(facts: Sequence[dict[str, str]]) -> RenderableType:
    from nncftools.render.table import Text, grid

    table = grid(gap=2)
    table.add_column("Metric", no_wrap=True)
    table.add_column("Unit")
    table.add_column("Meaning, source, cost per sample", overflow="fold")
    for metric in facts:
        origin = f"not here: {metric['missing']}" if metric["missing"] else f"{metric['source']}, {metric['cost']}"
        meaning = Text.assemble(f"{metric['meaning']}\n", (origin, "dim"))
        table.add_row(metric["name"], metric["unit"] or "–", meaning)
    return table


def schema() -> None:
    """Print the JSON Schema of a session file.

    \b
    Example:
      nncf-tools schema > session.schema.json
    """
    from nncftools.session import session

    screen.to_stdout(f"{json.dumps(session.schema(), indent=2)}\n")


def mark(name: Annotated[str, argument("NAME", "The operation's name in the report.")]) -> None:
    """Start an operation in the current recording; the next mark ends the operation.

    \b
    Example, in a script that `nncf-tools profile ./compress.sh` runs:
      nncf-tools mark Export
      optimum-cli export openvino --model DIR OUT
      nncf-tools mark 'Weight Compression'
      python compress.py OUT

    Outside a recording the command does nothing. In any other language, append a
    line to the file that NNCF_TOOLS_MARKS names (docs/operations.md).
    """
    if not name.strip():
        raise UsageError("argument NAME: at least one character expected")
    log = os.environ.get(VARIABLE)
    if not log:
        return
    from nncftools.marks.operations import mark_from_outside

    try:
        descriptor = open_log(os.fsencode(log))
        try:
            mark_from_outside(descriptor, name, "shell")
        finally:
            os.close(descriptor)
    except OSError as error:
        raise NncfToolsError(
            f"the marks log {log!r}, named by {VARIABLE}, cannot be written: {error.strerror}"
        ) from error
