"""``nncf-tools viz-compression``: a table and a trade-off picture of weight-compression results."""

from __future__ import annotations

import math
import pathlib
from typing import TYPE_CHECKING, Annotated

from nncftools.backports import StrEnum
from nncftools.cli import options, screen
from nncftools.cli.parameters import OTHER, READ, SHOW, WRITE, Texts, option
from nncftools.errors import UsageError
from nncftools.units import printable

if TYPE_CHECKING:
    from nncftools.compression.outputs import Outcome


class Format(StrEnum):
    """A kind of picture."""

    PNG = "png"
    SVG = "svg"
    PDF = "pdf"
    HTML = "html"


class Also(StrEnum):
    """A figure that the picture can show below the compression rate."""

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
        "Name the smallest model within BOUNDS, such as 'error<=5%, peak<=8GiB, latency<100ms', and mark it in the "
        "picture. Names: error, size, peak, inference peak, time, latency, first token. Default: name it for "
        "error<=5%.",
    ),
]
Panels = Annotated[
    list[Also] | None,
    option(
        "--also FIGURE",
        SHOW,
        f"Add a panel of FIGURE over the error to the picture: {', '.join(Also)}; repeatable.",
    ),
]


_FEWEST_LINES, _LINES = 16, 30
_REMEDIES = {"folder": "; choose another --output-dir", "metric": "; name one with --metric COLUMN:higher or :lower"}


def viz_compression(  # noqa: PLR0913 — one parameter per option
    *,
    inputs: Annotated[
        list[pathlib.Path], option("--input-file --input_file -i FILE", READ, "Results, as CSV; repeatable.")
    ],
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
            "Average the errors of this column (higher or lower is better) instead of all columns of quality; "
            "repeatable. '--metric standard' adds the four of NNCF's tables.",
        ),
    ] = None,
    recommend: Recommend = "",
    also: Panels = None,
    max_error: Annotated[
        str, option("--max-error PERCENT", SHOW, "Leave rows with a larger error out of the picture.")
    ] = "",
    extra: Annotated[bool, option("--extra", OTHER, "Show the file's other columns in the table.")] = False,
    lenient: Annotated[bool, option("--lenient", OTHER, "Omit the note of missing int8, int4, gptq rows.")] = False,
    terminal: Annotated[bool, option("--terminal", OTHER, "Print the picture in characters, too.")] = False,
    as_json: Annotated[bool, option("--json", OTHER, "Print all rows with the computed values, as JSON.")] = False,
) -> int:
    """Make a table (.md) and a picture of weight-compression results.

    The CSV file holds one row per compressed model: its name, mode, %int4,
    %int8, lora rank, plot name, size, and the results of its evaluation. The
    other rows are compared with the fp32 row.

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
    from nncftools.compression.outputs import Request, answers, make, rows
    from nncftools.compression.reading import FIGURES, chosen_metrics
    from nncftools.compression.results import USUAL_BOUNDS, bounds_of

    if len({path.resolve() for path in inputs}) < len(inputs):
        raise UsageError("option --input-file: a file is given twice")
    with options.naming_option("--recommend"):
        bounds = bounds_of(recommend) if recommend else None
    with options.naming_option("--metric"):
        chosen = chosen_metrics(tuple(metrics or ()))
    request = Request(
        inputs=inputs,
        folder=pathlib.Path(folder) if folder else None,
        formats=tuple(dict.fromkeys(formats)),
        metrics=chosen,
        lenient=lenient,
        extra=extra,
        bounds=bounds,
        also=[
            figure for name in dict.fromkeys(also or ()) for figure in FIGURES if figure.name == name.replace("-", " ")
        ],
        max_error=options.share("--max-error", max_error, math.inf) if max_error else None,
    )
    with options.naming_remedy(**_REMEDIES):
        outcome = make(request)
    if as_json:
        import json

        screen.to_stdout(json.dumps(rows(outcome.comparisons, bounds), indent=2) + "\n")
    else:
        lines = answers(outcome.comparisons, bounds or USUAL_BOUNDS)
        screen.to_stdout("".join(f"{printable(line)}\n" for line in lines))
        if terminal:
            _draw(outcome, request.max_error)
    for note in outcome.notes:
        screen.message(f"note: {note}")
    if outcome.left_out:
        screen.message(f"note: rows beyond --max-error, not in the picture: {outcome.left_out}")
    screen.to_stderr(f"Written to {', '.join(printable(str(path)) for path in outcome.files)}\n")
    return 0


def _draw(outcome: Outcome, max_error: float | None) -> None:
    """Print a chart of each model, as wide as the terminal and at most two thirds of its height."""
    import shutil
    import sys

    from nncftools.compression.outputs import chart

    columns, lines = shutil.get_terminal_size((screen.PLAIN_WIDTH, _LINES))
    unicode = "utf" in (sys.stdout.encoding or "").lower()
    height = min(_LINES, max(_FEWEST_LINES, lines * 2 // 3))
    for comparison in outcome.comparisons:
        screen.to_stdout(chart(comparison, max_error, columns, height, unicode=unicode))
