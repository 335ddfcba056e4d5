"""``nncf-tools viz-compression`` and ``from-lm-eval``: show and collect results of weight compression."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from nncftools.backports import StrEnum
from nncftools.cli import destination, options, screen
from nncftools.cli.parameters import OTHER, READ, SHOW, WRITE, File, Files, Texts, argument, option
from nncftools.errors import UsageError
from nncftools.units import printable

if TYPE_CHECKING:
    from nncftools.compression.outputs import Visualization


class Format(StrEnum):
    """Formats of pictures."""

    PNG = "png"
    SVG = "svg"
    PDF = "pdf"
    HTML = "html"


class Also(StrEnum):
    """Measured values that can have a panel of their own in the picture."""

    PEAK = "peak"
    INFERENCE_PEAK = "inference-peak"
    TIME = "time"
    LATENCY = "latency"
    FIRST_TOKEN = "first-token"  # noqa: S105 — of a text


Formats = Annotated[list[Format], option("--format -f FORMAT", WRITE, "png, svg, pdf, html; repeatable.")]
Recommend = Annotated[
    str,
    option(
        "--recommend BOUNDS",
        SHOW,
        "Name the smallest model within BOUNDS, such as 'error<=5%, peak<=8GiB, latency<100ms', and mark the model in "
        "the picture. Names: error, size, peak, inference peak, time, latency, first token. Default: error<=5%, "
        "without a mark.",
    ),
]
Panels = Annotated[
    list[Also] | None,
    option(
        "--also VALUE",
        SHOW,
        f"Add a panel to the picture. The panel shows VALUE against the error: {', '.join(Also)}; repeatable.",
    ),
]


_FEWEST_LINES = 16
_LINES = 30
_REMEDIES = {"folder": "; choose another --output-dir", "metric": "; name one with --metric COLUMN:higher or :lower"}


def viz_compression(  # noqa: PLR0913 — one parameter per option
    *,
    inputs: Annotated[list[Path], option("--input-file --input_file -i FILE", READ, "Results, as CSV; repeatable.")],
    folder: Annotated[
        str,
        option(
            "--output-dir --output_dir -o DIR",
            WRITE,
            "Write FILE.md and FILE.png to DIR and replace old ones. Default: the folder of the first FILE.",
        ),
    ] = "",
    formats: Formats = [Format.PNG],  # noqa: B006 — Typer's way to give a default
    metrics: Annotated[
        Texts,
        option(
            "--metric COLUMN:DIRECTION",
            READ,
            "Compute the error from this column, not from all columns of quality; repeatable. DIRECTION says which "
            "values are better: higher or lower. '--metric standard' adds the four columns of NNCF's tables.",
        ),
    ] = None,
    recommend: Recommend = "",
    also: Panels = None,
    max_error: Annotated[
        str,
        option(
            "--max-error PERCENT",
            SHOW,
            "Do not draw rows with a larger error. Default: do not draw rows far beyond all others.",
        ),
    ] = "",
    extra: Annotated[
        bool, option("--extra", OTHER, "Also show the columns of FILE that viz-compression does not know.")
    ] = False,
    lenient: Annotated[bool, option("--lenient", OTHER, "Omit the note of missing int8, int4, gptq rows.")] = False,
    terminal: Annotated[bool, option("--terminal", OTHER, "Print the picture in characters, too.")] = False,
    as_json: Annotated[bool, option("--json", OTHER, "Print all rows with the computed values, as JSON.")] = False,
) -> int:
    """Make a table (.md) and a picture of weight-compression results.

    The CSV file has a row for each compressed model: name, mode, %int4, %int8,
    lora rank, plot name, size, and the results of the evaluation. All rows are
    compared with the fp32 row.

    \b
    Examples:
      nncf-tools viz-compression -i data.csv -o out
      nncf-tools viz-compression -i data.csv --recommend 'error<=5%'
      nncf-tools viz-compression -i data.csv --recommend 'error<=5%, peak<=8GiB'
      nncf-tools viz-compression -i data.csv --also peak --also latency
      nncf-tools viz-compression -i a.csv -i b.csv -f png -f html -o out
      nncf-tools viz-compression -i data.csv --metric 'mmlu, acc:higher'
      nncf-tools viz-compression -i data.csv --terminal
      nncf-tools viz-compression -i data.csv --json --extra
    """
    from nncftools.compression.outputs import Request, describe_answers, list_rows, make
    from nncftools.compression.reading import FIGURES, parse_metrics
    from nncftools.compression.results import USUAL_BOUNDS, parse_bounds

    if len({path.resolve() for path in inputs}) < len(inputs):
        raise UsageError("option --input-file: a file is given twice")
    with options.naming_option("--recommend"):
        bounds = parse_bounds(recommend) if recommend else None
    with options.naming_option("--metric"):
        chosen = parse_metrics(tuple(metrics or ()))
    figures = {figure.name.replace(" ", "-"): figure for figure in FIGURES}
    request = Request(
        inputs=inputs,
        folder=Path(folder) if folder else None,
        formats=tuple(dict.fromkeys(formats)),
        metrics=chosen,
        lenient=lenient,
        extra=extra,
        bounds=bounds,
        also=[figures[name] for name in dict.fromkeys(also or ())],
        max_error=options.share("--max-error", max_error, math.inf) if max_error else None,
    )
    with options.naming_remedy(**_REMEDIES):
        outcome = make(request)
    if as_json:
        import json

        screen.to_stdout(json.dumps(list_rows(outcome.comparisons, bounds), indent=2) + "\n")
    else:
        lines = describe_answers(outcome.comparisons, bounds or USUAL_BOUNDS)
        screen.to_stdout("".join(f"{printable(line)}\n" for line in lines))
        if terminal:
            _draw(outcome)
    for note in outcome.notes:
        screen.message(f"note: {note}")
    screen.to_stderr(f"Written to {', '.join(printable(str(path)) for path in outcome.files)}\n")
    return 0


def _draw(outcome: Visualization) -> None:
    """Print a chart of each model. It is as wide as the terminal, and at most two thirds as high.

    If plotext cannot be loaded, print a message with the reason instead.
    """
    import shutil
    import sys

    from nncftools.compression.outputs import chart
    from nncftools.render.terminal_plot import chart_problem

    problem = chart_problem()
    if problem:
        screen.message(problem)
        return
    columns, lines = shutil.get_terminal_size((screen.PLAIN_WIDTH, _LINES))
    unicode = "utf" in (sys.stdout.encoding or "").lower()
    height = min(_LINES, max(_FEWEST_LINES, lines * 2 // 3))
    for comparison in outcome.comparisons:
        screen.to_stdout(chart(comparison, outcome.far, columns, height, unicode=unicode))


def from_lm_eval(  # noqa: PLR0913 — one parameter per option
    results: Annotated[Files, argument("RESULTS", "Result files (JSON) of lm-evaluation-harness.")] = None,
    *,
    output: Annotated[Path, option("--output -o FILE", OTHER, "The CSV file to create or extend.")],
    mode: Annotated[str, option("--mode TEXT", OTHER, "fp32, int8, int4 + gptq …")],
    model: Annotated[str, option("--model NAME", OTHER, "Default: the only model in FILE.")] = "",
    int4: Annotated[float | None, option("--int4 0..1", OTHER, "Share of int4 layers.")] = None,
    int8: Annotated[
        float | None, option("--int8 0..1", OTHER, "Share of int8 layers. Default: 1 minus --int4; for fp32, 0.")
    ] = None,
    lora_rank: Annotated[int | None, option("--lora-rank N", OTHER, "Rank of adapters.", min=1)] = None,
    plot_name: Annotated[str, option("--plot-name TEXT", OTHER, "Short name in the picture.")] = "",
    wwb: Annotated[File, option("--wwb FILE", OTHER, "metrics.csv of who-what-benchmark.")] = None,
    model_dir: Annotated[File, option("--model-dir DIR", OTHER, "Folder of the model, to measure the size.")] = None,
    tasks: Annotated[
        Texts,
        option(
            "--task TASK:METRIC",
            OTHER,
            "Also read this metric, into the column 'TASK, METRIC'. If it has several filters: TASK:METRIC,FILTER.",
        ),
    ] = None,
    setup: Annotated[str, option("--setup TEXT", OTHER, "Name of a new file's first column.")] = "model",
    force: Annotated[bool, option("--force", OTHER, "Replace figures that differ.")] = False,
) -> int:
    """Add a row to a CSV file for viz-compression, or fill gaps in a row.

    The command fills the row that has this model and mode, and the given --int4,
    --int8, --lora-rank and --plot-name. If no row has these values, the command
    adds one.

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
        tasks_to_read = filling.parse_tasks(tasks or ())
    figures: dict[str, float] = {}
    with options.naming_remedy(task="; name one with --task"):
        for path in results or ():
            figures |= filling.read_lm_eval(path, tasks_to_read)
        with options.naming_option("--task"):
            filling.check_found(tasks_to_read, figures)
        if wwb is not None:
            figures[SIMILARITY.column] = filling.read_similarity(wwb)
    if model_dir is not None:
        figures[SIZE] = float(f"{filling.measure_size(model_dir):.6g}")
    key = Key(
        mode.strip(),
        model.strip() or None,
        int4,
        int8,
        lora_rank=lora_rank,
        plot_name=plot_name.strip() or None,
    )
    naming = options.naming_remedy(
        row="; add --int4, --lora-rank or --plot-name",
        model="; name one with --model",
        force="; give --force to replace",
    )
    with destination.writing("--output", output), naming:
        filled = fill(output, setup.strip(), key, figures, force=force)
    action = "added" if filled.is_new else "completed"
    gaps = f"; still empty: {'; '.join(filled.gaps)}" if filled.gaps else ""
    screen.to_stderr(f"Row {filled.number} {action} in {printable(str(output))}{gaps}\n")
    return 0
