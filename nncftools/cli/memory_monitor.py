"""``python -m nncftools.memory_monitor``: the command line of NNCF's memory monitor, over our sampler."""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Sequence
from math import isnan

from nncftools.analysis.session import Session
from nncftools.cli import closing, destination, options, planning, recording, screen
from nncftools.errors import NncfToolsError
from nncftools.render.view import View
from nncftools.units import MemoryUnit, printable

_PROGRAM = "memory_monitor"
_EXAMPLES = """examples:
  python -m nncftools.memory_monitor --log-dir ./logs python allocate.py
  python -m nncftools.memory_monitor "optimum-cli export openvino --model DIR OUT"
  python -m nncftools.memory_monitor "python a.py > out.txt"

`nncf-tools monitor` does the same without a shell, and more."""


def main(words: Sequence[str]) -> int:
    """Record the command that the words name, write its logs, print the peaks; return the command's exit status."""
    parser = argparse.ArgumentParser(
        prog=_PROGRAM,
        description="Record the memory of a shell command and of its descendants: RSS, and the system's.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--log-dir",
        metavar="DIR",
        default=str(options.DEFAULT_LOG_DIR),
        help="the folder of the logs, the pictures and the session (default: %(default)s)",
    )
    parser.add_argument("executable", nargs="+", help="the command, for the shell; quote it if it has options")
    parsed, unknown = parser.parse_known_args(words)
    if unknown:
        parser.error(f"{unknown[0]!r} is not understood; quote the command, as one word")
    screen.prepare()
    try:
        return _record(pathlib.Path(parsed.log_dir), " ".join(parsed.executable))
    except NncfToolsError as error:
        screen.to_stderr(f"{_PROGRAM}: error: {printable(str(error))}\n")
        return error.exit_code


_TYPES = ["rss,system"]
"""As NNCF's tool records."""


def _record(log_dir: pathlib.Path, line: str) -> int:
    from nncftools.sampler.client import Starter

    argv = [planning.SHELL, "-c", line]
    request = options.Request(types=_TYPES)
    metrics, columns = planning.columns(request)
    target = destination.in_folder(log_dir, metrics)
    view = View(metrics=metrics)
    with Starter() as starter:
        screen.starter = starter
        run = recording.Run(starter, request, argv, planning.plan(columns, request), target)
        with target.place:
            recorded = recording.record(run, view)
            closing.show(recorded, run, view, quiet=True)
    if recorded.session is not None:
        screen.if_read(_summary(recorded.session, metrics, view.unit), screen.OUT)
    return recorded.status


def _summary(session: Session, metrics: Sequence[str], unit: MemoryUnit) -> str:
    from tabulate import tabulate

    rows = []
    for metric in metrics:
        peak = session.peaks[metric].low
        first = next((value for value in session.samples[metric] if not isnan(value)), None)
        above = None if peak is None or first is None else peak - first
        rows += [[metric, True, unit.label(above)], [metric, False, unit.label(peak)]]
    return f"\nMemory summary:\n{tabulate(rows, headers=['Memory type', 'From zero', 'Peak value'])}\n"
