"""``nncf-tools from-lm-eval``: turns the results of evaluation tools into a row of weight-compression results."""

from __future__ import annotations

import math
import pathlib
from typing import Annotated

import typer

from nncftools.cli import options
from nncftools.errors import UsageError

EXAMPLES = """\b
Examples:
  nncf-tools from-lm-eval fp32.json -o data.csv --model Phi-3 --mode fp32 \\
      --model-dir models/fp32
  nncf-tools from-lm-eval gptq.json -o data.csv --mode 'int4 + gptq' \\
      --int4 1 --plot-name gptq --wwb wwb/metrics.csv --model-dir models/gptq
  nncf-tools viz-compression -i data.csv"""

_MENDED = {
    "row": "; add --int4, --lora-rank or --plot-name",
    "model": "; name one with --model",
    "force": "; give --force to replace",
}

Results = Annotated[
    list[pathlib.Path] | None,
    typer.Argument(metavar="[RESULTS]...", show_default=False, help="Result files (JSON) of lm-evaluation-harness."),
]
Output = Annotated[
    pathlib.Path,
    typer.Option("--output", "-o", metavar="FILE", show_default=False, help="The CSV file to create or to extend."),
]
Wwb = Annotated[
    pathlib.Path | None,
    typer.Option("--wwb", metavar="FILE", show_default=False, help="metrics.csv of who-what-benchmark."),
]
Share = Annotated[float | None, typer.Option("--int4", metavar="0..1", help="Share of int4 layers.")]
Share8 = Annotated[
    float | None, typer.Option("--int8", metavar="0..1", help="Share of int8 layers. Default: the rest.")
]
Tasks = Annotated[
    list[str] | None,
    typer.Option(
        "--task",
        metavar="TASK:METRIC",
        show_default=False,
        help="Also read this metric, into the column 'TASK, METRIC'.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.command(name="from-lm-eval", epilog=EXAMPLES)(from_lm_eval)


def from_lm_eval(  # noqa: PLR0913 — one parameter per option
    results: Results = None,
    *,
    output: Output,
    mode: Annotated[str, typer.Option("--mode", metavar="TEXT", show_default=False, help="fp32, int8, int4 + gptq …")],
    model: Annotated[str, typer.Option("--model", metavar="NAME", help="Default: the only model in FILE.")] = "",
    int4: Share = None,
    int8: Share8 = None,
    lora_rank: Annotated[int | None, typer.Option("--lora-rank", metavar="N", min=1, help="Rank of adapters.")] = None,
    plot_name: Annotated[str, typer.Option("--plot-name", metavar="TEXT", help="Short name in the picture.")] = "",
    wwb: Wwb = None,
    model_dir: Annotated[
        pathlib.Path | None,
        typer.Option(
            "--model-dir", metavar="DIR", show_default=False, help="The size of its files, in GiB, is the model's size."
        ),
    ] = None,
    tasks: Tasks = None,
    setup: Annotated[str, typer.Option("--setup", metavar="TEXT", help="Name of a new file's first column.")] = "model",
    max_size: options.MaxSize = None,
    force: Annotated[bool, typer.Option("--force", help="Replace figures that differ.")] = False,
) -> int:
    """Add a row to a CSV file for viz-compression, or fill gaps in a row.

    The row to fill has this model and mode, and the given --int4, --int8,
    --lora-rank and --plot-name. Without such a row, a new one is added.
    """
    from nncftools.cli import destination, screen
    from nncftools.compression import filling
    from nncftools.compression.filling import Key, fill
    from nncftools.compression.reading import SIMILARITY, SIZE
    from nncftools.units import printable

    for option, share in (("--int4", int4), ("--int8", int8)):
        if share is not None and not (math.isfinite(share) and 0 <= share <= 1):
            raise UsageError(f"option {option}: a share from 0 to 1 expected, found {share:g}")
    if not mode.strip() or not setup.strip():
        raise UsageError("options --mode and --setup: text expected")
    with options.named("--task"):
        wanted = filling.tasks_of(tasks or ())
    figures: dict[str, float] = {}
    with options.reading(max_size), options.mended(task="; name one with --task"):
        for path in results or ():
            figures |= filling.from_lm_eval(path, wanted)
        if wwb is not None:
            figures[SIMILARITY.column] = filling.similarity(wwb)
    if model_dir is not None:
        figures[SIZE] = float(f"{filling.size_gib(model_dir):.6g}")
    key = Key(mode.strip(), model.strip() or None, int4, int8, lora_rank, plot_name.strip() or None)
    try:
        with options.reading(max_size), options.mended(**_MENDED):
            filled = fill(output, setup.strip(), key, figures, force=force)
    except OSError as error:
        raise destination.cannot_write("--output", output, error) from error
    what = "added" if filled.is_new else "completed"
    gaps = f"; still empty: {'; '.join(filled.gaps)}" if filled.gaps else ""
    screen.to_stderr(f"Row {filled.number} {what} in {printable(str(output))}{gaps}\n")
    return 0
