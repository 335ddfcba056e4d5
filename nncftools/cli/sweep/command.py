"""``nncf-tools sweep``: compresses a real model in many ways, and makes the results that viz-compression shows."""

from __future__ import annotations

import pathlib
import sys
import time
from typing import TYPE_CHECKING, Annotated

from nncftools.cli import options, screen
from nncftools.cli.parameters import READ, RUN, WRITE, File, Texts, option
from nncftools.cli.viz_compression import Also, Panels, Recommend, viz_compression
from nncftools.errors import NncfToolsError, UsageError
from nncftools.units import bytes_from

if TYPE_CHECKING:
    from nncftools.cli.sweep.runs import Sweep


def sweep(  # noqa: PLR0913 — one parameter per option
    *,
    model: Annotated[
        pathlib.Path,
        option(
            "--model -m DIR",
            READ,
            "Folder of a language model (Hugging Face, or exported to OpenVINO); with --kind an .xml or .onnx file.",
        ),
    ],
    output: Annotated[pathlib.Path, option("--output -o FILE", WRITE, "The CSV file of the results.")],
    grid: Annotated[
        str, option("--grid quick|full|FILE", RUN, "What to try; FILE is a TOML file of configurations.")
    ] = "quick",
    text: Annotated[
        File, option("--text FILE", READ, "Held-out text for perplexity (.txt, or .jsonl with `text`).")
    ] = None,
    calibration: Annotated[
        File, option("--calibration FILE", READ, "Text for data-aware compression; not of --text.")
    ] = None,
    lambada: Annotated[
        File,
        option("--lambada FILE", READ, "Passages whose last word is guessed, one per line. Default: those of --text."),
    ] = None,
    prompts: Annotated[
        File, option("--prompts FILE", READ, "Prompts to continue, one per line, for similarity.")
    ] = None,
    tasks: Annotated[
        Texts,
        option(
            "--tasks TASK[:METRIC]",
            READ,
            "Also a task of lm-evaluation-harness, if it is installed and the data is in its cache; repeatable.",
        ),
    ] = None,
    include_path: Annotated[File, option("--include-path DIR", READ, "Folder with tasks of your own (YAML).")] = None,
    only: Annotated[Texts, option("--only NAME", RUN, "Only this configuration and the baseline; repeatable.")] = None,
    kind: Annotated[
        File,
        option(
            "--kind FILE",
            READ,
            "Another kind of model: a Python file with `calibration() -> iterable` and `score(compiled) -> float`.",
        ),
    ] = None,
    max_memory: Annotated[
        int | None,
        option("--max-memory SIZE", RUN, "Limit of each configuration: a control group, or by RSS.", parser=bytes_from),
    ] = None,
    recommend: Recommend = "",
    also: Panels = None,
    name: options.Name = "",
    python: Annotated[
        str, option("--python FILE", RUN, "The Python that has NNCF and OpenVINO. Default: this one.")
    ] = "",
    scheduler: Annotated[
        str | None,
        option(
            "--scheduler ADDRESS",
            RUN,
            "Run on a Dask cluster, such as tcp://HOST:8786, one configuration at a time on each worker.",
        ),
    ] = None,
    keep_models: Annotated[bool, option("--keep-models", WRITE, "Keep the compressed models.")] = False,
    dry_run: Annotated[bool, option("--dry-run", RUN, "Show what would run, with expected times.")] = False,
    resume: Annotated[bool, option("--resume", RUN, "Go on with the sweep of --output.")] = False,
    force: options.Force = False,
) -> int:
    """Compress a model in many ways; measure size, quality, time, and memory.

    The results are a CSV file, and a table and a picture of it as made by
    viz-compression. Each configuration is on disk as soon as it has ended.

    \b
    Examples:
      nncf-tools sweep --model DIR -o results.csv --text held_out.txt \\
          --calibration calibration.txt --prompts prompts.txt
      nncf-tools sweep --model DIR -o results.csv --text held_out.txt --grid full \\
          --calibration calibration.txt --recommend 'error<=5%' --resume
      nncf-tools sweep --model DIR -o results.csv --text held_out.txt --dry-run
      nncf-tools sweep --model model.onnx --kind my_data.py -o results.csv

    \b
    Each configuration runs in processes of its own that are recorded; results.sweep
    holds the recordings. It needs NNCF and OpenVINO: pip install 'nncf-tools[nncf]',
    and optimum-intel to export a folder of Hugging Face; docs/sweep.md says how.
    """
    begun_s = time.monotonic()
    from nncftools.cli.sweep import checks, runs

    asked = runs.SweepOptions(
        model=model,
        output=output,
        grid=grid,
        inputs={"text": text, "calibration": calibration, "lambada": lambada, "prompts": prompts, "kind": kind},
        only=tuple(only or ()),
        name=name.strip(),
        python=python or sys.executable,
        max_memory=max_memory,
        keep_models=keep_models,
        resume=resume,
        force=force,
        is_dry=dry_run,
        scheduler=scheduler,
        tasks=tuple(tasks or ()),
        include_path=include_path,
    )
    _check_shown(recommend, also, is_kind=kind is not None)
    choices, notes = checks.checked(asked)
    for note in notes:
        screen.message(f"note: {note}")
    if dry_run:
        screen.to_stdout(runs.dry_run(choices))
        return 0
    interrupted, measured_s = runs.sweep(choices)
    if interrupted is not None:
        return interrupted
    status = _finish(choices, recommend, also)
    if scheduler is None:
        screen.to_stderr(runs.took(begun_s, measured_s))
    return status


def _finish(choices: Sweep, recommend: str, also: list[Also] | None) -> int:
    """Make table and picture; return the exit status."""
    from nncftools.cli.sweep import runs

    rows = list(choices.folder.rows(choices.grid).values())
    for row in rows:
        if not row.is_complete:
            screen.message(f"failed: {row.name}: {row.failed}")
    if not rows[0].is_complete:
        raise NncfToolsError(f"the baseline failed: {rows[0].failed}; without it there is no table and no picture")
    metrics, notes = runs.metrics_of(rows)
    for note in notes:
        screen.message(f"note: {note}")
    if not metrics:
        raise NncfToolsError(
            f"no figure can be compared, so there is no table and no picture; {choices.folder.output} has the figures"
        )
    viz_compression(
        inputs=[choices.folder.output], metrics=metrics, recommend=recommend, also=also, extra=True, lenient=True
    )
    runs.define(choices.folder.output.with_suffix(".md"), rows)
    return int(any(not row.is_complete for row in rows))


def _check_shown(recommend: str, also: list[Also] | None, *, is_kind: bool) -> None:
    """Raise UsageError for figures that the results will not have."""
    from nncftools.compression.reading import FIRST_TOKEN, LATENCY
    from nncftools.compression.results import bounds_of

    with options.naming_option("--recommend"):
        bounded = [figure.name for figure in bounds_of(recommend).figures] if recommend else []
    shown = [figure.replace("-", " ") for figure in also or ()]
    for name, figures in (("--recommend", bounded), ("--also", shown)):
        for figure in (LATENCY, FIRST_TOKEN):
            if is_kind and figure.name in figures:
                raise UsageError(f"option {name}: {figure.name!r} is of language models; --kind measures another one")
