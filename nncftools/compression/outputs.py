"""Makes the table and the pictures from input files; nothing is written before everything is checked and made.

The results as text cells, as a Markdown table that no cell can break, and by column name.

The configurations that failed, as a list under the table.

One self-contained page: the picture, with the full row shown at each point, and a sortable table.

The trade-off picture in characters, by plotext: error over compression rate.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import pathlib
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from nncftools.compression.checking import BASELINE, load, number
from nncftools.compression.reading import (
    DECIMALS,
    ERROR,
    INT4,
    INT8,
    LORA_RANK,
    MODE,
    PLOT_NAME,
    RATE,
    SIZE,
    STANDARD,
    STDERR,
    Figure,
    Metric,
    ResultsError,
)
from nncftools.compression.results import (
    Bounds,
    Comparison,
    Result,
    chosen,
    comparisons,
    differing,
    left_out_text,
    require,
)
from nncftools.files import replacing
from nncftools.units import printable, shortened

if TYPE_CHECKING:
    from nncftools.compression.picture import Drawing


_COLUMNS = (MODE, INT4, INT8, LORA_RANK, ERROR, RATE)
MODEL = "model"
_SPECIAL = re.compile(r"[\\`*\[\]<>&|~$@{}]|(?<!\w)_|_(?!\w)|(?<=\bwww)\.|:(?=//)|!(?=\[)")
"""What Markdown, its common extensions or HTML may interpret; ``_`` is harmless inside a word."""


def cells(comparisons: Sequence[Comparison], *, extra: bool = False) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the table as plain text; several models get a name column.

    With ``extra``, the files' other columns follow.
    """
    found = (name for comparison in comparisons for result in comparison.results for name in result.row.extra)
    more = list(dict.fromkeys(found)) if extra else []
    several = len(comparisons) > 1
    header = [*([MODEL] if several else []), *_COLUMNS, *more]
    rows = [
        [
            *([comparison.name] if several else []),
            *_standard(result),
            *(extra_text(name, result.row.extra.get(name, "")) for name in more),
        ]
        for comparison in comparisons
        for result in comparison.results
    ]
    return header, rows


def details(comparison: Comparison, result: Result) -> dict[str, object]:
    """Return all that is known of a result, by column name; None is unknown."""
    row = result.row
    return {
        **{name: _known(name, cell) for name, cell in row.extra.items()},
        comparison.model.setup or MODEL: row.model,
        MODE: row.mode,
        INT4: row.int4,
        INT8: row.int8,
        LORA_RANK: row.lora_rank,
        PLOT_NAME: row.plot_name,
        SIZE: row.size,
        **row.values,
        **{metric.stderr_column: row.stderrs.get(metric.column) for metric in comparison.metrics},
        ERROR: result.error,
        ERROR + STDERR: result.error_stderr,
        RATE: result.rate,
        "kind": str(result.group),
        "on Pareto front": result.is_pareto,
        "file": comparison.model.path.name,
        "row": row.number,
    }


def rows(comparisons: Sequence[Comparison], bounds: Bounds | None = None) -> list[dict[str, object]]:
    """Return the details of all results.

    With bounds, ``within bounds`` is None when only unknown figures decide, and ``recommended`` marks each model's best
    choice.
    """
    found: list[dict[str, object]] = []
    for comparison in comparisons:
        best = chosen(comparison, bounds).best if bounds is not None else None
        for result in comparison.results:
            judged = {} if bounds is None else {"within bounds": bounds.hold(result), "recommended": result is best}
            found.append({**details(comparison, result), **judged})
    return found


def extra_text(name: str, cell: str) -> str:
    """Return a cell of a further column; the figures of known ones have as many digits as they need."""
    value = number(cell) if name in DECIMALS else None
    return cell if value is None or not math.isfinite(value) else f"{value:.{DECIMALS[name]}f}"


def _known(name: str, cell: str) -> str | float | None:
    """Return the figure of a known column, None for an empty cell; any other cell as it is."""
    if name not in DECIMALS:
        return cell
    value = number(cell)
    return (cell or None) if value is None or not math.isfinite(value) else value


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table whose columns are aligned in the source, too, without a newline at its end.

    It is laid out as NNCF's visualizer does it, so that a published table changes only where figures do.
    """
    from tabulate import tabulate

    return tabulate(
        [[escaped(cell) for cell in row] for row in rows],
        headers=[escaped(name).replace(" ", "<br>") for name in header],
        tablefmt="pipe",
        disable_numparse=True,
        colalign=["right" if name == LORA_RANK else "left" for name in header] if rows else None,
    )


def escaped(text: str) -> str:
    """Escape text for Markdown, on one line, without control characters."""
    plain = printable(" ".join(text.split()))
    return _SPECIAL.sub(lambda match: f"&#{ord(match[0])};", plain)


def percent(fraction: float) -> str:
    """Return a fraction as a percentage, with a decimal only when needed."""
    return f"{round(fraction * 100, 1):g}%"


def error_text(error: float) -> str:
    """Return a relative error in percent with one decimal."""
    return f"{round(error * 100, 1) + 0.0:.1f}%"


def rate_text(rate: float) -> str:
    """Return a compression rate: how many times smaller."""
    return f"{rate:.1f}x"


def _standard(result: Result) -> list[str]:
    row = result.row
    rank = "" if row.lora_rank is None else str(row.lora_rank)
    return [row.mode, percent(row.int4), percent(row.int8), rank, error_text(result.error), rate_text(result.rate)]


def failures(comparisons: Sequence[Comparison]) -> str:
    """Return a Markdown list of what failed, with the verdicts; empty if nothing did."""
    several = len(comparisons) > 1
    lines = []
    for comparison in comparisons:
        for failure in comparison.model.failures:
            what = failure.mode + (f" ({failure.plot_name})" if failure.plot_name else "")
            of = f"{comparison.name}: " if several else ""
            lines.append(f"- {escaped(of + what)}: {escaped(failure.verdict)}")
    return "\n\nFailed:\n\n" + "\n".join(lines) if lines else ""


_TEMPLATE = pathlib.Path(__file__).with_name("page.html")
_UNSEEN = re.compile(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<metadata>.*?</metadata>|<!--.*?-->", re.DOTALL)
"""The parts of matplotlib's SVG that a page does not need, with the addresses in them."""

_ALL_DIGITS_FROM = 1e5


def page(
    comparisons: Sequence[Comparison], picture: bytes, bounds: Bounds | None = None, *, extra: bool = False
) -> str:
    """Return the page; ``picture`` is the SVG of the same results."""
    header, table = cells(comparisons, extra=extra)
    results = [result for comparison in comparisons for result in comparison.results]
    is_number = [
        all(number(cell.rstrip("%x")) is not None for cell in column if cell) for column in zip(*table, strict=True)
    ]
    kinds = [' class="number"' if right_aligned else "" for right_aligned in is_number]
    choices = [chosen(comparison, bounds) for comparison in comparisons] if bounds else []
    best = [choice.best for choice in choices]
    rows = [
        _row(place, result, zip(header, line, kinds, strict=True), is_best=any(result is one for one in best))
        for place, (result, line) in enumerate(zip(results, table, strict=True))
    ]
    title = " · ".join(comparison.title for comparison in comparisons)
    note = "Point at a mark to see its full row; click a heading to sort."
    for comparison, choice in zip(comparisons, choices, strict=False):
        left_out = f" ({left_out_text(choice)})" if choice.left_out else ""
        name = "none" if choice.best is None else choice.best.label
        note += f" {comparison.name}: {name} is the smallest with {bounds}{left_out}."
    parts = {
        "TITLE": _text(title),
        "NOTE": _text(note),
        "PICTURE": _UNSEEN.sub("", picture.decode()).strip(),
        "HEADER": "".join(_heading(name, kind) for name, kind in zip(header, kinds, strict=True)),
        "ROWS": "\n".join(rows),
        "DATA": _data([details(comparison, result) for comparison in comparisons for result in comparison.results]),
    }
    template = _TEMPLATE.read_text(encoding="utf-8")
    return re.sub("@([A-Z]+)@", lambda match: parts[match[1]], template)


def _heading(name: str, kind: str) -> str:
    order = ' aria-sort="ascending"' if name == ERROR else ""
    return f'<th scope="col"{kind}{order}><button type="button">{_text(name)}</button></th>'


def _row(place: int, result: Result, cells: Iterable[tuple[str, str, str]], *, is_best: bool) -> str:
    """Return a table row; ``cells`` are column names, texts and attributes."""
    classes = [*([] if result.is_pareto else ["dominated"]), *(["recommended"] if is_best else [])]
    row = result.row
    exact = {ERROR: result.error, RATE: result.rate, INT4: row.int4, INT8: row.int8}
    columns = "".join(
        f'<td{kind} data-value="{_text(repr(exact[name]) if name in exact else text)}">{_text(text)}</td>'
        for name, text, kind in cells
    )
    return f'<tr data-row="{place}" class="{" ".join(classes)}">{columns}</tr>'


def _text(text: str) -> str:
    return escape(printable(" ".join(text.split())))


def _data(rows: Sequence[dict[str, object]]) -> str:
    """Return the rows as JSON that cannot close its script element."""
    pairs = [[[name, _plain(value)] for name, value in row.items()] for row in rows]
    return json.dumps(pairs, ensure_ascii=True).replace("<", "\\u003c")


def _plain(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.5g}" if abs(value) < _ALL_DIGITS_FROM else f"{value:.0f}"
    return printable(str(value))


FORMATS = ("png", "svg", "pdf", "html")


class Request(NamedTuple):
    """The inputs and options of one call."""

    inputs: Sequence[pathlib.Path]
    folder: pathlib.Path | None = None
    """The output folder; by default that of the first input."""
    formats: Sequence[str] = ("png",)
    metrics: Sequence[Metric] = STANDARD
    lenient: bool = False
    """Modes may be missing without a note."""
    extra: bool = False
    bounds: Bounds | None = None
    also: Sequence[Figure] = ()
    """What further panels of the picture show."""
    max_error: float | None = None
    """Results with a larger error are not drawn."""


class Outcome(NamedTuple):
    """The results and the files written."""

    comparisons: Sequence[Comparison]
    files: Sequence[pathlib.Path]
    notes: Sequence[str]
    """Remarks for readers of the table and the picture."""
    left_out: int
    """The number of results not drawn because of ``max_error``."""


def visualize(
    input_file: str | os.PathLike[str], output_dir: str | os.PathLike[str] | None = None, *, lenient: bool = False
) -> list[pathlib.Path]:
    """Write the table (``.md``) and the picture (``.png``) of a CSV file of weight-compression results.

    They are named like the input and replace existing files; without ``output_dir``, or with an empty one, they go next
    to the input. Returns their paths. A remark on the results is a UserWarning: two baselines, for example, or no row
    with int8, int4 or gptq (``lenient``: no warning of such missing rows).

    Raises ResultsError, a RuntimeError, whose message lists all problems; MissingInputError, which is a
    FileNotFoundError too, without the input. Nothing is written then.
    """
    folder = pathlib.Path(output_dir) if output_dir else None
    outcome = make(Request([pathlib.Path(input_file)], folder, lenient=lenient))
    for note in outcome.notes:
        warnings.warn(note, UserWarning, stacklevel=2)
    return list(outcome.files)


def make(request: Request) -> Outcome:
    """Make and write the outputs. Raises ResultsError; nothing is written then."""
    from nncftools.compression.picture import draw

    models = load(request.inputs, request.metrics)
    require(models, [*(request.bounds.figures if request.bounds else ()), *request.also])
    found = comparisons(models, request.metrics)
    targets = _targets(request)
    drawing = draw(found, request.bounds, request.max_error, request.also)
    contents = _contents(request, found, targets, drawing)
    write(contents)
    notes = _notes(found, drawing.unnamed, lenient=request.lenient)
    return Outcome(found, list(contents), notes, drawing.left_out)


def _targets(request: Request) -> dict[str, pathlib.Path]:
    """Return the file to write for each ending. Raises ResultsError for one that must not be replaced."""
    first = request.inputs[0]
    folder = first.parent if request.folder is None else request.folder
    stem = "+".join(dict.fromkeys(path.stem for path in request.inputs))[:100]
    targets = {ending: folder / f"{stem}.{ending}" for ending in dict.fromkeys(("md", *request.formats))}
    for ending, path in targets.items():
        target = path.resolve() if path.is_symlink() else path
        if target.exists() and not target.is_file():
            raise ResultsError(f"cannot write {str(path)!r}: it is not a file")
        if any(target.exists() and target.samefile(source) for source in request.inputs):
            raise ResultsError(f"cannot write {str(path)!r}: it is the input", remedy="folder")
        targets[ending] = target
    return targets


def _contents(
    request: Request, found: Sequence[Comparison], targets: dict[str, pathlib.Path], drawing: Drawing
) -> dict[pathlib.Path, bytes]:
    """Return the content of each file."""
    from nncftools.compression.picture import rendered

    contents = {targets["md"]: (markdown(*cells(found, extra=request.extra)) + failures(found)).encode()}
    for kind in request.formats:
        picture = rendered(drawing, "svg" if kind == "html" else kind)
        if kind == "html":
            picture = page(found, picture, request.bounds, extra=request.extra).encode()
        contents[targets[kind]] = picture
    return contents


def write(contents: dict[pathlib.Path, bytes]) -> None:
    """Write all files or none: they are renamed into place only when all are complete. Raises ResultsError."""
    path = next(iter(contents))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResultsError(f"cannot make the folder {str(path.parent)!r}: {error.strerror or error}") from error
    try:
        with contextlib.ExitStack() as stack:
            for path, content in contents.items():
                stack.enter_context(replacing(path)).write_bytes(content)
    except OSError as error:
        raise ResultsError(f"cannot write {str(path)!r}: {error.strerror or error}") from error


def _notes(found: Sequence[Comparison], unnamed: int, *, lenient: bool) -> list[str]:
    notes = []
    for comparison in found:
        model = comparison.model
        if model.missing and not lenient:
            notes.append(f"{comparison.name}: no row with {', '.join(model.missing)}; the others are compared")
        if model.repeated:
            first, *others = (row.number for row in (model.baseline, *model.repeated))
            which = f"rows {first}, {', '.join(map(str, others))} are all {BASELINE}"
            notes.append(f"{comparison.name}: {which}; row {first} is the baseline")
        notes += [
            f"{comparison.name}: column {column!r} does not match the figures of its rows; the computed one is shown"
            for column in differing(comparison)
        ]
    if unnamed:
        notes.append(unnamed_text(unnamed))
    return notes


def unnamed_text(points: int) -> str:
    """Return the remark that points of the picture have no names."""
    return f"no room in the picture for the names of {points} points; the table has them"


_NAME = 28
_AXIS, _AROUND = 8, 4
"""About how many columns and lines plotext takes for axes and their labels."""
_ROOM = 1.12
_ROOM_FOR_LABELS = 70
"""So many columns hold the labels of both axes in one line."""
_PLAIN = str.maketrans({"─": "-", "│": "|", **dict.fromkeys("┌┐└┘├┤┬┴┼", "+")})
_BEST, _OTHER = "●○", "@o"


def chart(comparison: Comparison, max_error: float | None, width: int, height: int, *, unicode: bool) -> str:
    """Return a chart of ``height`` lines and ``width`` columns: filled points are on the Pareto front.

    Names that would cover others are left out: the table has them.
    """
    import plotext

    shown = [one for one in comparison.results if max_error is None or one.error <= max_error]
    marker = {is_best: (_BEST if unicode else _OTHER)[not is_best] for is_best in (True, False)}
    plotext.terminal.limit(False, False)  # noqa: FBT003 — width and height
    figure = plotext.figure
    figure.clear()
    figure.plot_size(width, height)
    figure.theme("colorless")
    figure.title(printable(comparison.title))
    figure.label("compression rate", "x")
    figure.label("average relative error, %" if width >= _ROOM_FOR_LABELS else "error, %", "y")
    most = max(one.rate for one in shown) * _ROOM
    figure.ruler("x").lim(0, most)
    for is_best in (False, True):
        points = [one for one in shown if one.is_pareto is is_best]
        rates, errors = [one.rate for one in points], [one.error * 100 for one in points]
        figure.draw(figure.signal(rates, errors, marker=plotext.marker(marker[is_best], plotext.pixel())))
    column = most / max(1, width - _AXIS)
    for one, name, side in _named(shown, column, height):
        alignment = "left" if side > 0 else "right"
        figure.draw(figure.text(one.rate + 2 * side * column, one.error * 100, name, alignment=alignment))
    built: str = figure.build().string(colorless=True)
    drawn = built if unicode else built.translate(_PLAIN)
    return "".join(f"{line.rstrip()}\n" for line in drawn.rstrip("\n").split("\n"))


def _named(shown: Sequence[Result], column: float, height: int) -> Iterator[tuple[Result, str, int]]:
    """Yield the results whose names have room right (1) or left (-1) of their points, those of the front first."""
    errors = [one.error for one in shown]
    line = (max(errors) - min(errors)) / max(1, height - _AROUND) or 1.0
    taken = [(one.error / line, one.rate / column, one.rate / column) for one in shown]
    most = max(one.rate for one in shown) * _ROOM / column
    for one in sorted(shown, key=lambda one: not one.is_pareto):
        name = shortened(printable(one.label), _NAME)
        row, at = one.error / line, one.rate / column
        for side in (1, -1):
            begin, end = sorted((at + side, at + side * (len(name) + 3)))
            near = [place for place in taken if abs(place[0] - row) < 1 and place[1] < end and begin < place[2]]
            if begin >= 0 and end <= most and not near:
                taken.append((row, begin, end))
                yield one, name, side
                break
