"""``nncf-tools sweep``: compresses a real model in many ways, and makes the results that viz-compression shows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from nncftools.cli import options, screen
from nncftools.cli.parameters import with_options
from nncftools.cli.sweep.options import SweepOptions
from nncftools.cli.viz_compression import viz_compression
from nncftools.errors import NncfToolsError, UsageError
from nncftools.units import seconds_text

if TYPE_CHECKING:
    from nncftools.cli.sweep.runs import Sweep


@with_options(SweepOptions)
def sweep(request: SweepOptions) -> int:
    """Compress a model in many ways; measure size, quality, time, and memory.

    The results are a CSV file, and a table and a picture of it as made by
    viz-compression. Each configuration is on disk as soon as it has ended.

    \b
    Examples:
      nncf-tools sweep --model DIR -o results.csv --text held_out.txt \\
          --calibration calibration.txt --prompts prompts.txt
      nncf-tools sweep -m DIR -o results.csv --text held_out.txt --grid full \\
          --calibration calibration.txt --recommend 'error<=5%' --resume
      nncf-tools sweep --model DIR -o results.csv --text held_out.txt --dry-run
      nncf-tools sweep --model model.onnx --kind my_data.py -o results.csv

    Each configuration runs in processes of its own that are recorded; results.sweep
    holds the recordings. It needs NNCF and OpenVINO: pip install 'nncf-tools[nncf]',
    and optimum-intel to export a folder of Hugging Face; docs/sweep.md says how.
    """
    begun_s = time.monotonic()
    from nncftools.cli.sweep import checks, runs

    _check_shown(request)
    plan, notes = checks.checked(request)
    for note in notes:
        screen.message(f"note: {note}")
    if request.dry_run:
        screen.to_stdout(runs.dry_run(plan))
        return 0
    interrupted = plan.run()
    if interrupted is not None:
        return interrupted
    status = _finish(plan)
    if request.scheduler is None:
        wall_s = time.monotonic() - begun_s
        own = max(0.0, wall_s - plan.measured_s) / wall_s
        screen.to_stderr(f"Took {seconds_text(wall_s)}, {own:.1%} of it outside of the measured processes\n")
    return status


def _finish(plan: Sweep) -> int:
    """Make table and picture; return the exit status."""
    from nncftools.cli.sweep import runs

    rows = list(plan.folder.rows(plan.grid).values())
    for row in rows:
        if not row.is_complete:
            screen.message(f"failed: {row.name}: {row.failed}")
    if not rows[0].is_complete:
        raise NncfToolsError(f"the baseline failed: {rows[0].failed}; without it there is no table and no picture")
    table, request = plan.folder.output, plan.options
    plan.folder.check()
    viz_compression(inputs=[table], recommend=request.recommend, also=request.also, extra=True, lenient=True)
    plan.folder.check()
    runs.define(table.with_suffix(".md"), rows)
    return int(any(not row.is_complete for row in rows))


def _check_shown(request: SweepOptions) -> None:
    """Raise UsageError for figures that the results will not have."""
    from nncftools.compression.reading import FIRST_TOKEN, LATENCY
    from nncftools.compression.results import bounds_of

    with options.naming_option("--recommend"):
        bounded = [figure.name for figure in bounds_of(request.recommend).figures] if request.recommend else []
    shown = [figure.replace("-", " ") for figure in request.also or ()]
    for name, figures in (("--recommend", bounded), ("--also", shown)):
        for figure in (LATENCY, FIRST_TOKEN):
            if request.kind is not None and figure.name in figures:
                raise UsageError(f"option {name}: {figure.name!r} is of language models; --kind measures another one")
