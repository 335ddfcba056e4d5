"""``nncf-tools from-lm-eval``: turns the results of evaluation tools into a row of weight-compression results."""

from __future__ import annotations

import math
import pathlib
from typing import Annotated

from nncftools.cli import destination, options, screen
from nncftools.cli.parameters import OTHER, File, Files, Texts, argument, option
from nncftools.errors import UsageError
from nncftools.units import printable


def from_lm_eval(  # noqa: PLR0913 — one parameter per option
    results: Annotated[Files, argument("RESULTS", "Result files (JSON) of lm-evaluation-harness.")] = None,
    *,
    output: Annotated[pathlib.Path, option("--output -o FILE", OTHER, "The CSV file to create or to extend.")],
    mode: Annotated[str, option("--mode TEXT", OTHER, "fp32, int8, int4 + gptq …")],
    model: Annotated[str, option("--model NAME", OTHER, "Default: the only model in FILE.")] = "",
    int4: Annotated[float | None, option("--int4 0..1", OTHER, "Share of int4 layers.")] = None,
    int8: Annotated[float | None, option("--int8 0..1", OTHER, "Share of int8 layers. Default: the rest.")] = None,
    lora_rank: Annotated[int | None, option("--lora-rank N", OTHER, "Rank of adapters.", min=1)] = None,
    plot_name: Annotated[str, option("--plot-name TEXT", OTHER, "Short name in the picture.")] = "",
    wwb: Annotated[File, option("--wwb FILE", OTHER, "metrics.csv of who-what-benchmark.")] = None,
    model_dir: Annotated[
        File, option("--model-dir DIR", OTHER, "The size of its files, in GiB, is the model's size.")
    ] = None,
    tasks: Annotated[
        Texts,
        option(
            "--task TASK:METRIC",
            OTHER,
            "Also read this metric, into the column 'TASK, METRIC'; with several filters METRIC,FILTER.",
        ),
    ] = None,
    setup: Annotated[str, option("--setup TEXT", OTHER, "Name of a new file's first column.")] = "model",
    force: Annotated[bool, option("--force", OTHER, "Replace figures that differ.")] = False,
) -> int:
    """Add a row to a CSV file for viz-compression, or fill gaps in a row.

    The row to fill has this model and mode, and the given --int4, --int8,
    --lora-rank and --plot-name. Without such a row, a new one is added.

    \b
    Examples:
      nncf-tools from-lm-eval fp32.json -o data.csv --model Phi-3 --mode fp32 \\
          --model-dir models/fp32
      nncf-tools from-lm-eval gptq.json -o data.csv --mode 'int4 + gptq' \\
          --int4 1 --plot-name gptq --wwb wwb/metrics.csv --model-dir models/gptq
      nncf-tools viz-compression -i data.csv
    """
    from nncftools.compression import filling
    from nncftools.compression.filling import Key, fill
    from nncftools.compression.reading import SIMILARITY, SIZE

    for name, share in (("--int4", int4), ("--int8", int8)):
        if share is not None and not (math.isfinite(share) and 0 <= share <= 1):
            raise UsageError(f"option {name}: a share from 0 to 1 expected, found {share:g}")
    if not mode.strip() or not setup.strip():
        raise UsageError("options --mode and --setup: text expected")
    destination.check_file("--output", output, force=True)
    with options.naming_option("--task"):
        wanted = filling.tasks_of(tasks or ())
    figures: dict[str, float] = {}
    with options.naming_remedy(task="; name one with --task"):
        for path in results or ():
            figures |= filling.from_lm_eval(path, wanted)
        with options.naming_option("--task"):
            filling.check_found(wanted, figures)
        if wwb is not None:
            figures[SIMILARITY.column] = filling.similarity(wwb)
    if model_dir is not None:
        figures[SIZE] = float(f"{filling.size_gib(model_dir):.6g}")
    key = Key(mode.strip(), model.strip() or None, int4, int8, lora_rank, plot_name.strip() or None)
    mended = options.naming_remedy(
        row="; add --int4, --lora-rank or --plot-name",
        model="; name one with --model",
        force="; give --force to replace",
    )
    with destination.writing("--output", output), mended:
        filled = fill(output, setup.strip(), key, figures, force=force)
    what = "added" if filled.is_new else "completed"
    gaps = f"; still empty: {'; '.join(filled.gaps)}" if filled.gaps else ""
    screen.to_stderr(f"Row {filled.number} {what} in {printable(str(output))}{gaps}\n")
    return 0
