"""``nncf-tools sweep``: compress a model in many ways, and measure size, quality, time and memory."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from nncftools.cli import options, screen
from nncftools.cli.compression import viz_compression
from nncftools.cli.parameters import with_options
from nncftools.cli.sweep import SweepOptions
from nncftools.errors import NncfToolsError, UsageError
from nncftools.units import seconds_text

if TYPE_CHECKING:
    from nncftools.cli.sweep.runs import Sweep


@with_options(SweepOptions)
def sweep(request: SweepOptions) -> int:
    """Compress a model in many ways; measure size, quality, time, and memory.

    The results are a CSV file, and a table and a picture like those of `nncf-tools
    viz-compression`. Each result is saved as soon as its configuration has ended.

    \b
    Examples:
      nncf-tools sweep --model DIR -o results.csv --text held_out.txt \\
          --calibration calibration.txt --prompts prompts.txt
      nncf-tools sweep -m DIR -o results.csv --text held_out.txt --grid full \\
          --calibration calibration.txt --recommend 'error<=5%' --resume
      nncf-tools sweep --model DIR -o results.csv --text held_out.txt --dry-run
      nncf-tools sweep --model model.onnx --kind my_data.py -o results.csv

    Each configuration runs in recorded processes; the folder results.sweep holds
    the recordings. The sweep needs NNCF and OpenVINO (pip install
    'nncf-tools[nncf]'), and optimum-intel to export a folder of Hugging Face; see
    docs/compression-and-sweep.md.
    """
    begun_s = time.monotonic()
    from nncftools.cli.sweep import checks, runs

    _check_figures(request)
    plan, notes = checks.make_plan(request)
    for note in notes:
        screen.message(f"note: {note}")
    if request.dry_run:
        screen.to_stdout(runs.describe_plan(plan))
        return 0
    interrupted = plan.run()
    if interrupted is not None:
        return interrupted
    status = _finish(plan)
    if request.scheduler is None:
        wall_s = time.monotonic() - begun_s
        overhead = max(0.0, wall_s - plan.measured_s) / wall_s
        screen.to_stderr(f"Took {seconds_text(wall_s)}, {overhead:.1%} of it outside the measured processes\n")
    return status


def _finish(plan: Sweep) -> int:
    """Make the table and the picture; return the exit status."""
    from nncftools.cli.sweep import runs

    rows = list(plan.folder.rows(plan.grid).values())
    failed = [row for row in rows if not row.is_complete]
    for row in failed:
        screen.message(f"failed: {row.name}: {row.failed}")
    if rows[0] in failed:
        raise NncfToolsError(f"the baseline failed: {rows[0].failed}; without it there is no table and no picture")
    table = plan.folder.output
    options = plan.options
    plan.folder.check()
    viz_compression(
        inputs=[table],
        recommend=options.recommend,
        also=options.also,
        extra=True,
        lenient=True,
    )
    plan.folder.check()
    runs.add_definitions(table.with_suffix(".md"), rows)
    return int(bool(failed))


def _check_figures(request: SweepOptions) -> None:
    """Raise UsageError if --also or --recommend names a measurement that the results will not have."""
    from nncftools.compression.reading import FIRST_TOKEN, LATENCY
    from nncftools.compression.results import parse_bounds

    names = {"--also": [figure.replace("-", " ") for figure in request.also or ()]}
    if request.recommend:
        with options.naming_option("--recommend"):
            names["--recommend"] = [figure.name for figure in parse_bounds(request.recommend).figures]
    if request.kind is None:
        return
    for option_name, figures in names.items():
        for figure in (LATENCY, FIRST_TOKEN):
            if figure.name in figures:
                raise UsageError(
                    f"option {option_name}: {figure.name!r} exists only for language models, not with --kind"
                )
