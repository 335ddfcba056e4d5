"""``nncf-tools sweep``: compress a model in many ways, with the results that viz-compression shows.

This file has the options and the subcommand. The other files are imported after the options are parsed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from nncftools.cli import options, screen
from nncftools.cli.compression import Panels, Recommend, viz_compression
from nncftools.cli.parameters import READ, RUN, WRITE, File, Texts, option, with_options
from nncftools.errors import NncfToolsError, UsageError
from nncftools.units import bytes_from, seconds_text

if TYPE_CHECKING:
    from nncftools.cli.sweep.runs import Sweep


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """The options of `sweep`."""

    model: Annotated[
        Path, option("--model -m DIR", READ, "Folder of a language model; with --kind, an .xml or .onnx file.")
    ]
    output: Annotated[Path, option("--output -o FILE", WRITE, "The CSV file for the results.")]
    grid: Annotated[str, option("--grid quick|full|FILE", RUN, "Configurations to try; FILE is in TOML.")] = "quick"
    text: Annotated[File, option("--text FILE", READ, "Held-out text for perplexity (.txt or .jsonl).")] = None
    calibration: Annotated[File, option("--calibration FILE", READ, "Text for data-aware compression.")] = None
    lambada: Annotated[
        File, option("--lambada FILE", READ, "Passages to complete, one per line. Default: passages of --text.")
    ] = None
    prompts: Annotated[File, option("--prompts FILE", READ, "Prompts for similarity, one per line.")] = None
    tasks: Annotated[
        Texts, option("--tasks TASK[:METRIC]", READ, "Also run a task of lm-evaluation-harness; repeatable.")
    ] = None
    include_path: Annotated[File, option("--include-path DIR", READ, "Folder with tasks of your own (YAML).")] = None
    only: Annotated[Texts, option("--only NAME", RUN, "Only this configuration and the baseline; repeatable.")] = None
    kind: Annotated[
        File,
        option("--kind FILE", READ, "For another kind of model: Python file with functions calibration() and score()."),
    ] = None
    max_memory: Annotated[
        int | None, option("--max-memory SIZE", RUN, "Memory limit for each configuration.", parser=bytes_from)
    ] = None
    recommend: Recommend = ""
    also: Panels = None
    name: options.Name = ""
    python: Annotated[
        str, option("--python FILE", RUN, "The Python with NNCF and OpenVINO. Default: the Python of nncf-tools.")
    ] = ""
    scheduler: Annotated[
        str | None, option("--scheduler ADDRESS", RUN, "Run on a Dask cluster, such as tcp://HOST:8786.")
    ] = None
    keep_models: Annotated[bool, option("--keep-models", WRITE, "Keep the compressed models.")] = False
    dry_run: Annotated[bool, option("--dry-run", RUN, "Only list the configurations, with expected times.")] = False
    resume: Annotated[bool, option("--resume", RUN, "Continue the interrupted sweep in --output.")] = False
    force: options.Force = False

    @property
    def inputs(self) -> Mapping[str, Path]:
        """The input files, by option name."""
        names = ("text", "calibration", "lambada", "prompts", "kind")
        files = {name: getattr(self, name) for name in names}
        return {name: path for name, path in files.items() if path is not None}

    @property
    def interpreter(self) -> str:
        """The Python with NNCF and OpenVINO."""
        return self.python or sys.executable


@with_options(SweepOptions)
def sweep(request: SweepOptions) -> int:
    """Compress a model in many ways; measure size, quality, time, and memory.

    The results are a CSV file, with a table and a picture as viz-compression makes
    them. Each configuration is saved as soon as it has ended.

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
    docs/sweep.md.
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
    """Make table and picture; return the exit status."""
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
    """Raise UsageError for figures that the results will not have."""
    from nncftools.compression.reading import FIRST_TOKEN, LATENCY
    from nncftools.compression.results import bounds_of

    names = {"--also": [figure.replace("-", " ") for figure in request.also or ()]}
    if request.recommend:
        with options.naming_option("--recommend"):
            names["--recommend"] = [figure.name for figure in bounds_of(request.recommend).figures]
    if request.kind is None:
        return
    for option_name, figures in names.items():
        for figure in (LATENCY, FIRST_TOKEN):
            if figure.name in figures:
                raise UsageError(
                    f"option {option_name}: {figure.name!r} exists only for language models, not with --kind"
                )
