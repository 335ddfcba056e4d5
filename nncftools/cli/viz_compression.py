"""``nncf-tools viz-compression``: a table and a trade-off picture of weight-compression results."""

from __future__ import annotations

import math
import pathlib
from typing import TYPE_CHECKING, Annotated

import typer

from nncftools.backports import StrEnum
from nncftools.cli import help_page, options
from nncftools.errors import UsageError

if TYPE_CHECKING:
    from nncftools.compression.outputs import Outcome
    from nncftools.compression.results import Bound

EXAMPLES = """\b
Examples:
  nncf-tools viz-compression -i data.csv -o out
  nncf-tools viz-compression -i data.csv --recommend 'error<=5%'
  nncf-tools viz-compression -i a.csv -i b.csv -f png -f html -o out
  nncf-tools viz-compression -i data.csv --metric 'mmlu, acc:higher'
  nncf-tools viz-compression -i data.csv --json --extra"""


class Format(StrEnum):
    """A kind of picture."""

    PNG = "png"
    SVG = "svg"
    PDF = "pdf"
    HTML = "html"


Inputs = Annotated[
    list[pathlib.Path],
    typer.Option(
        "--input-file",
        "--input_file",
        "-i",
        metavar="FILE",
        show_default=False,
        help="Results, as CSV; repeatable.",
        rich_help_panel=help_page.READ,
    ),
]
Folder = Annotated[
    str,
    typer.Option(
        "--output-dir",
        "--output_dir",
        "-o",
        metavar="DIR",
        show_default=False,
        help="Write FILE.md and FILE.png to DIR and replace old ones. Default: the folder of the first FILE.",
        rich_help_panel=help_page.WRITE,
    ),
]
Formats = Annotated[
    list[Format],
    typer.Option(
        "--format", "-f", metavar="FORMAT", help="png, svg, pdf, html; repeatable.", rich_help_panel=help_page.WRITE
    ),
]
Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        metavar="COLUMN:DIRECTION",
        show_default=False,
        help="Average the errors of this column (higher or lower is better) instead of the standard four; repeatable. "
        "'--metric standard' adds the standard four.",
        rich_help_panel=help_page.READ,
    ),
]
Recommend = Annotated[
    str,
    typer.Option(
        "--recommend",
        metavar="BOUND",
        help="Print the smallest model within BOUND, such as 'error<=5%'.",
        rich_help_panel=help_page.SHOW,
    ),
]
MaxError = Annotated[
    str,
    typer.Option(
        "--max-error",
        metavar="PERCENT",
        help="Leave rows with a larger error out of the picture.",
        rich_help_panel=help_page.SHOW,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.command(name="viz-compression", epilog=EXAMPLES)(viz_compression)


def viz_compression(  # noqa: PLR0913 — one parameter per option
    *,
    inputs: Inputs,
    folder: Folder = "",
    formats: Formats = [Format.PNG],  # noqa: B006 — Typer's way to give a default
    metrics: Metrics = None,
    recommend: Recommend = "",
    max_error: MaxError = "",
    extra: Annotated[bool, typer.Option("--extra", help="Show the file's other columns in the table.")] = False,
    lenient: Annotated[bool, typer.Option("--lenient", help="Omit the note of missing int8, int4, gptq rows.")] = False,
    max_size: options.MaxSize = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all rows with the computed values, as JSON.")] = False,
) -> int:
    """Make a table (.md) and a picture of weight-compression results.

    The CSV file holds one row per compressed model: its name, mode, %int4,
    %int8, lora rank, plot name, size, and the results of its evaluation. The
    other rows are compared with the fp32 row.
    """
    from nncftools.cli import screen
    from nncftools.compression.columns import chosen_metrics
    from nncftools.compression.outputs import Request, make
    from nncftools.compression.results import bound_of
    from nncftools.compression.table import rows

    if len({path.resolve() for path in inputs}) < len(inputs):
        raise UsageError("option --input-file: a file is given twice")
    with options.named("--recommend"):
        bound = bound_of(recommend) if recommend else None
    with options.named("--metric"):
        chosen = chosen_metrics(tuple(metrics or ()))
    request = Request(
        inputs=inputs,
        folder=pathlib.Path(folder) if folder else None,
        formats=tuple(dict.fromkeys(formats)),
        metrics=chosen,
        lenient=lenient,
        extra=extra,
        bound=bound,
        max_error=_percent(max_error) if max_error else None,
    )
    with options.reading(max_size), options.mended(folder="; choose another --output-dir"):
        outcome = make(request)
    if as_json:
        import json

        screen.to_stdout(json.dumps(rows(outcome.comparisons, bound), indent=2) + "\n")
    elif bound is not None:
        screen.to_stdout(_recommendation(outcome, bound))
    _close(outcome)
    return 0


def _close(outcome: Outcome) -> None:
    """Print the notes on table and picture, and the paths of the files."""
    from nncftools.cli import screen
    from nncftools.text import printable

    for note in outcome.notes:
        screen.message(f"note: {note}")
    if outcome.left_out:
        screen.message(f"note: rows beyond --max-error, not in the picture: {outcome.left_out}")
    screen.to_stderr(f"Written to {', '.join(printable(str(path)) for path in outcome.files)}\n")


def _percent(text: str) -> float:
    """Return a percentage, with or without %, as a fraction. Raises UsageError."""
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise UsageError(f"option --max-error: a percentage above 0 expected, found {text!r}")
    return value / 100


def _recommendation(outcome: Outcome, bound: Bound) -> str:
    """Return a line per model: the smallest one under the bound."""
    from nncftools.compression.results import recommended
    from nncftools.compression.table import error_text, rate_text
    from nncftools.text import printable

    lines = []
    for comparison in outcome.comparisons:
        best = recommended(comparison, bound)
        if best is None:
            lines.append(f"{comparison.name}: no row with {bound}")
            continue
        name = best.row.mode + (f" ({best.row.plot_name})" if best.row.plot_name else "")
        figures = f"error {error_text(best.error)}, {best.row.size:g} Gb, {rate_text(best.rate)} smaller"
        lines.append(f"{comparison.name}: the smallest with {bound} is {name}: {figures}")
    return "".join(f"{printable(line)}\n" for line in lines)
