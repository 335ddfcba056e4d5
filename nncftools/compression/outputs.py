"""Makes the outputs from input files. No file is written before all inputs are checked and all outputs are ready.

The outputs are:
- a Markdown table with a list of failed configurations; no text in a cell can break the table
- pictures
- a page in a single file, with the picture, the full row at each point and a sortable table
- the rows as dictionaries with the column names as keys
- a chart made of characters
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from html import escape
from typing import Any, NamedTuple

from nncftools.compression import reading
from nncftools.compression import results as computed
from nncftools.compression.checking import BASELINE, incomparable, load, parse_number
from nncftools.compression.reading import DECIMALS, ERROR, INT4, INT8, LORA_RANK, MODE, RATE, STANDARD, ResultsError
from nncftools.compression.results import (
    USUAL_BOUNDS,
    Bounds,
    Comparison,
    Group,
    Result,
    choose,
    error_text,
    figure_text,
    find_far,
    get_figure,
    left_out_text,
    name_in_sentence,
)
from nncftools.files import Folder, replacing
from nncftools.markdown import draw_table, text
from nncftools.units import printable, shortened

_COLUMNS = [MODE, INT4, INT8, LORA_RANK, ERROR, RATE]
MODEL = "model"


def cells(comparisons: Sequence[Comparison], *, extra: bool = False) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the table as plain text.

    If there are several models, the first column has the names of the models. If ``extra`` is true, the last columns
    are all other columns of the files.
    """
    further: dict[str, None] = {}
    if extra:
        for comparison in comparisons:
            for result in comparison.results:
                further |= dict.fromkeys(result.row.extra)
    header = [*_COLUMNS, *further]
    rows = []
    for comparison in comparisons:
        for result in comparison.results:
            row = result.row
            texts = [
                row.mode,
                percent(row.int4),
                percent(row.int8),
                "" if row.lora_rank is None else str(row.lora_rank),
                error_text(result.error),
                rate_text(result.rate),
            ]
            texts += [extra_text(name, row.extra.get(name, "")) for name in further]
            rows.append(texts)
            if len(comparisons) > 1:
                texts.insert(0, comparison.name)
    if len(comparisons) > 1:
        header.insert(0, MODEL)
    return header, rows


def details(comparison: Comparison, result: Result) -> dict[str, object]:
    """Return all facts about a result: ``{column: value}``. The value is None if unknown."""
    row = result.row
    return {
        **{name: _read_figure(name, cell) for name, cell in row.extra.items()},
        comparison.model.setup or MODEL: row.model,
        MODE: row.mode,
        INT4: row.int4,
        INT8: row.int8,
        LORA_RANK: row.lora_rank,
        reading.PLOT_NAME: row.plot_name,
        reading.SIZE: row.size,
        **row.values,
        **{metric.stderr_column: row.stderrs.get(metric.column) for metric in comparison.metrics},
        ERROR: result.error,
        ERROR + reading.STDERR: result.error_stderr,
        RATE: result.rate,
        "kind": str(result.group),
        "on Pareto front": result.is_pareto,
        "file": comparison.model.path.name,
        "row": row.number,
    }


def list_rows(comparisons: Sequence[Comparison], bounds: Bounds | None = None) -> list[dict[str, object]]:
    """Return the details of all results.

    If bounds are given, there are two more keys. ``within bounds`` is None if the answer depends on unknown values.
    ``recommended`` is true for the best choice of each model.
    """
    rows: list[dict[str, object]] = []
    for comparison in comparisons:
        for result in comparison.results:
            row = details(comparison, result)
            if bounds is not None:
                row["within bounds"] = bounds.hold(result)
                row["recommended"] = result is choose(comparison, bounds).best
            rows.append(row)
    return rows


def extra_text(name: str, cell: str) -> str:
    """Return the text to show for ``cell`` in the column ``name``.

    If ``DECIMALS`` has the column, a number is rounded to the given decimals. Any other cell is returned unchanged.
    """
    value = parse_number(cell) if name in DECIMALS else None
    return cell if value is None else f"{value:.{DECIMALS[name]}f}"


def _read_figure(name: str, cell: str) -> str | float | None:
    """Return the value of ``cell`` in the column ``name``.

    If ``DECIMALS`` has the column, return a number as a float, and None for an empty cell. Return any other cell
    unchanged.
    """
    if name not in DECIMALS:
        return cell
    value = parse_number(cell)
    if value is None:
        return cell or None
    return value


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table without a newline at the end.

    The layout is the same as in NNCF's visualizer, so that a diff of a published table shows only the changed numbers.
    """
    headings = [text(name).replace(" ", "<br>") for name in header]
    alignments = ["left"] * len(header)
    if LORA_RANK in header:
        alignments[header.index(LORA_RANK)] = "right"
    return draw_table(headings, [list(map(text, row)) for row in rows], alignments)


def percent(fraction: float) -> str:
    """Return a fraction as a percentage, with a decimal only when needed."""
    return f"{round(fraction * 100, 1):g}%"


def rate_text(rate: float) -> str:
    """Return a compression rate as text. The rate says how many times smaller the model is."""
    return f"{rate:.1f}x"


def failures(comparisons: Sequence[Comparison]) -> str:
    """Return a Markdown list of failed configurations, each with the verdict (why it failed); empty if none failed."""
    lines = []
    for comparison in comparisons:
        for failure in comparison.model.failures:
            name = _name_model(comparisons, comparison) + failure.mode
            if failure.plot_name:
                name += f" ({failure.plot_name})"
            lines.append(f"- {text(name)}: {text(failure.verdict)}")
    return "\n\nFailed:\n\n" + "\n".join(lines) if lines else ""


def describe_answers(comparisons: Sequence[Comparison], bounds: Bounds) -> list[str]:
    """Return a line per model: the row with the smallest model size within the bounds (the user's limits).

    The line also says how many rows were left out because a value with a bound is unknown.
    """
    lines = []
    for comparison in comparisons:
        choice = choose(comparison, bounds)
        answer = f"No model has {bounds.words}"
        if choice.best is not None:
            figures = ", ".join(_list_figures(choice.best, bounds))
            answer = f"{name_in_sentence(choice.best)} is the smallest with {bounds.words}: {figures}"
        if choice.left_out:
            answer += f"; {left_out_text(choice)}"
        lines.append(_name_model(comparisons, comparison) + answer)
    return lines


def _name_model(comparisons: Sequence[Comparison], comparison: Comparison) -> str:
    """Return the model's name for the beginning of a line; empty if there is a single model."""
    return f"{comparison.name}: " if len(comparisons) > 1 else ""


def _list_figures(result: Result, bounds: Bounds) -> Iterator[str]:
    yield f"error {error_text(result.error)}"
    yield f"{result.row.size:g} Gb"
    if result.group is not Group.BASELINE:
        yield f"{rate_text(result.rate)} smaller"
    for figure in bounds.figures:
        value = get_figure(result.row, figure) if figure in reading.FIGURES else None
        if value is not None:
            yield f"{figure.name} {figure_text(figure, value.high)}"


_TEMPLATE = pathlib.Path(__file__).with_name("page.html")
_UNSEEN = re.compile(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<metadata>.*?</metadata>|<!--.*?-->", re.DOTALL)
"""Matches the parts of matplotlib's SVG that are invisible in a page, such as metadata with web addresses."""

_ALL_DIGITS_FROM = 1e5


def page(
    comparisons: Sequence[Comparison], picture: bytes, bounds: Bounds | None = None, *, extra: bool = False
) -> str:
    """Return the HTML page; ``picture`` is an SVG of the same results."""
    header, table = cells(comparisons, extra=extra)
    kinds = []
    for column in zip(*table, strict=True):
        is_number = all(parse_number(cell.rstrip("%x")) is not None for cell in column if cell)
        kinds.append(' class="number"' if is_number else "")
    heading = ""
    for name, kind in zip(header, kinds, strict=True):
        order = ' aria-sort="ascending"' if name == ERROR else ""
        heading += f'<th scope="col"{kind}{order}><button type="button">{_escape(name)}</button></th>'
    bounds = bounds or USUAL_BOUNDS
    rows: list[str] = []
    data = []
    for comparison in comparisons:
        best = choose(comparison, bounds).best
        for result in comparison.results:
            columns = zip(header, table[len(rows)], kinds, strict=True)
            rows.append(_render_row(len(rows), result, columns, is_best=result is best))
            facts = details(comparison, result)
            data.append([[name, _render_fact(value)] for name, value in facts.items()])
    sentences = [f"{answer}." for answer in describe_answers(comparisons, bounds)]
    parts = {
        "TITLE": _escape(" · ".join(comparison.title for comparison in comparisons)),
        "NOTE": _escape(" ".join([*sentences, "Point at a mark to see its full row; click a heading to sort."])),
        "PICTURE": _UNSEEN.sub("", picture.decode()).strip(),
        "HEADER": heading,
        "ROWS": "\n".join(rows),
        "DATA": json.dumps(data, ensure_ascii=True).replace("<", "\\u003c"),  # a text must not close the script element
    }
    template = _TEMPLATE.read_text(encoding="utf-8")
    return re.sub("@([A-Z]+)@", lambda match: parts[match[1]], template)


def _render_row(number: int, result: Result, columns: Iterable[tuple[str, str, str]], *, is_best: bool) -> str:
    """Return an HTML table row; ``columns`` has the name, the text and the attributes of each cell."""
    classes = []
    if not result.is_pareto:
        classes.append("dominated")
    if is_best:
        classes.append("recommended")
    exact = {
        ERROR: result.error,
        RATE: result.rate,
        INT4: result.row.int4,
        INT8: result.row.int8,
    }
    cells = ""
    for name, shown, kind in columns:
        value = _escape(repr(exact[name]) if name in exact else shown)
        cells += f'<td{kind} data-value="{value}">{_escape(shown)}</td>'
    return f'<tr data-row="{number}" class="{" ".join(classes)}">{cells}</tr>'


def _escape(text: str) -> str:
    return escape(printable(" ".join(text.split())))


def _render_fact(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.5g}" if abs(value) < _ALL_DIGITS_FROM else f"{value:.0f}"
    return printable(str(value))


FORMATS = ("png", "svg", "pdf", "html")


class Request(NamedTuple):
    """The inputs and options of the function ``make``, which writes the table and the picture."""

    inputs: Sequence[pathlib.Path]
    folder: pathlib.Path | None = None
    """The output folder; by default the folder of the first input."""
    formats: Sequence[str] = ("png",)
    metrics: Sequence[reading.Metric] = ()
    """The metrics whose errors are averaged; by default the metrics in the columns of the files."""
    lenient: bool = False
    """If true, add no note if a model has no row with int8, int4 or gptq."""
    extra: bool = False
    bounds: Bounds | None = None
    also: Sequence[reading.Cost] = ()
    """Memory sizes or durations, such as the peak memory of compression; each has a separate panel in the picture."""
    max_error: float | None = None
    """Results with a larger error are not drawn. By default, these are the results far beyond most others."""


class Visualization(NamedTuple):
    """The results, and the files that were written."""

    comparisons: Sequence[Comparison]
    files: Sequence[pathlib.Path]
    notes: Sequence[str]
    """Remarks for readers of the table and the picture."""
    far: Collection[int]
    """The ``id`` of each result that is not drawn."""


def make(request: Request) -> Visualization:
    """Make and write the outputs. Raises ResultsError before any file is written."""
    from nncftools.compression.picture import draw, render

    sources: Sequence[pathlib.Path | reading.RawTable] = request.inputs
    metrics = request.metrics
    reasons: dict[reading.Metric, str] = {}
    if not metrics:
        tables: list[reading.RawTable] = []
        with contextlib.suppress(ResultsError):  # ``load`` reports the problems of each file later
            tables = [reading.read(path) for path in request.inputs]
            sources = tables
        found = reading.found_metrics(tables)
        reasons = incomparable(tables, found)
        metrics = [metric for metric in found if metric not in reasons]
    left_out = [f"{metric.column} is left out of the error: {why}" for metric, why in reasons.items()]
    if not metrics:
        raise ResultsError(f"no metric can be compared; {'; '.join(left_out)}")
    models = load(sources, metrics)
    bounded = request.bounds.figures if request.bounds else []
    computed.require(models, [*bounded, *request.also])
    comparisons = computed.comparisons(models, metrics)
    targets = _name_targets(request)
    far = find_far(comparisons, request.bounds or USUAL_BOUNDS, request.max_error)
    drawing = draw(comparisons, request.bounds, far, request.also)
    table = markdown(*cells(comparisons, extra=request.extra)) + failures(comparisons)
    contents = {targets["md"]: table.encode()}
    for kind in request.formats:
        picture = render(drawing, "svg" if kind == "html" else kind)
        if kind == "html":
            picture = page(comparisons, picture, request.bounds, extra=request.extra).encode()
        contents[targets[kind]] = picture
    write(contents)
    notes = _collect_notes(comparisons, drawing.unnamed, lenient=request.lenient)
    if not request.metrics and set(metrics) != set(STANDARD):
        notes.insert(0, f"the error is the average of {'; '.join(metric.column for metric in metrics)}")
    if drawing.left_out:
        notes.append(f"not in the picture, because of larger errors: {', '.join(drawing.left_out)}")
    return Visualization(comparisons, list(contents), [*notes, *left_out], far)


def _name_targets(request: Request) -> dict[str, pathlib.Path]:
    """Return the path of each output: ``{file name ending: path}``.

    Raises ResultsError if an output is also an input.
    """
    first = request.inputs[0]
    folder = first.parent if request.folder is None else request.folder
    stem = "+".join(dict.fromkeys(path.stem for path in request.inputs))[:100]
    targets = {ending: folder / f"{stem}.{ending}" for ending in ("md", *request.formats)}
    for path in targets.values():
        if path.exists() and any(path.samefile(source) for source in request.inputs):
            raise ResultsError(f"cannot write {str(path)!r}: it is the input", remedy="folder")
    return targets


def write(contents: dict[pathlib.Path, bytes]) -> None:
    """Write all files or none. When all files are complete, rename them to the final names. Raises ResultsError."""
    path = next(iter(contents))
    try:
        Folder(path.parent, make=True).close()
        with contextlib.ExitStack() as stack:
            for path, content in contents.items():
                stack.enter_context(replacing(path)).write(content)
    except OSError as error:
        raise ResultsError(f"cannot write {str(path)!r}: {error.strerror or error}") from error


def _collect_notes(comparisons: Sequence[Comparison], unnamed: int, *, lenient: bool) -> list[str]:
    notes = []
    for comparison in comparisons:
        name = comparison.name
        model = comparison.model
        if model.missing and not lenient:
            notes.append(f"{name}: no row with {', '.join(model.missing)}; the other rows are compared")
        if model.repeated:
            first = model.baseline.number
            others = ", ".join(str(row.number) for row in model.repeated)
            notes.append(f"{name}: rows {first}, {others} are all {BASELINE}; row {first} is the baseline")
        for column in computed.find_wrong_columns(comparison):
            note = f"{name}: column {column!r} differs from the computed values, which are shown instead"
            notes.append(note)
    if unnamed:
        notes.append(unnamed_text(unnamed))
    return notes


def unnamed_text(points: int) -> str:
    """Return the remark that some points of the picture have no names."""
    return f"no room in the picture for the names of {points} points; the table has them"


_NAME = 28
_AXIS_COLUMNS = 8
_AXIS_LINES = 4
"""plotext needs about this many lines for an axis with labels, and about ``_AXIS_COLUMNS`` columns.
"""
_ROOM = 0.12
"""The free space to the right of the largest error, as a share of the axis."""
_ROOM_FOR_LABELS = 70
"""The least width, in columns, at which the long labels of both axes fit in one line."""
_PLAIN = str.maketrans("─│┌┐└┘├┤┬┴┼", "-|+++++++++")


def chart(comparison: Comparison, far: Collection[int], width: int, height: int, *, unicode: bool) -> str:
    """Return a chart of ``height`` lines and ``width`` columns. Filled points are on the Pareto front.

    A name that would cover another name is left out, because the table has all names.
    """
    import plotext

    shown = [result for result in comparison.results if id(result) not in far]
    plotext.terminal.limit(False, False)  # noqa: FBT003 — width and height
    figure = plotext.figure
    figure.clear()
    figure.plot_size(width, height)
    figure.theme("colorless")
    figure.title(printable(comparison.title))
    is_wide = width >= _ROOM_FOR_LABELS
    figure.label("average relative error, %" if is_wide else "error, %", "x")
    figure.label("compression rate" if is_wide else "rate", "y")
    errors = [result.error * 100 for result in shown]
    rates = [result.rate for result in shown]
    begin = min(0.0, *errors)
    end = max(1.0, *errors)
    end += (end - begin) * _ROOM
    _set_ticks(figure.ruler("x"), begin, end, width // 12)
    _set_ticks(figure.ruler("y"), min(rates), max(rates), height // 3)
    figure.ruler("x").lim(begin, end)
    for is_best, sign in enumerate("○●" if unicode else "o@"):
        points = [number for number, result in enumerate(shown) if result.is_pareto == is_best]
        signal = figure.signal(
            [errors[number] for number in points],
            [rates[number] for number in points],
            marker=plotext.marker(sign, plotext.pixel()),
        )
        figure.draw(signal)
    column = (end - begin) / max(1, width - _AXIS_COLUMNS)
    line = (max(rates) - min(rates)) / max(1, height - _AXIS_LINES) or 1.0
    columns = [(error - begin) / column for error in errors]
    places = list(zip(columns, (rate / line for rate in rates), strict=True))
    for index, name, side in _choose_names(shown, places, (end - begin) / column):
        left = errors[index] + 2 * side * column
        alignment = "left" if side > 0 else "right"
        figure.draw(figure.text(left, rates[index], name, alignment=alignment))
    built: str = figure.build().string(colorless=True)
    drawn = built if unicode else built.translate(_PLAIN)
    return "".join(f"{line.rstrip()}\n" for line in drawn.rstrip("\n").split("\n"))


def _set_ticks(ruler: Any, begin: float, end: float, most: int) -> None:  # noqa: ANN401 — plotext has no types
    from matplotlib.ticker import MaxNLocator

    locator = MaxNLocator(most, steps=(1, 2, 2.5, 5, 10))
    values = locator.tick_values(begin, end)
    ticks = [value for value in values if begin <= value <= end]
    ruler.ticks(ticks, [f"{tick:,.10g}" for tick in ticks])


def _choose_names(
    shown: Sequence[Result], places: Sequence[tuple[float, float]], width: float
) -> Iterator[tuple[int, str, int]]:
    """Yield ``(index, name, side)`` for each result whose name has room beside the point.

    ``side`` is 1 (right of the point) or -1 (left). Results on the Pareto front are the first to get room. ``places``
    has the position of each point in the terminal: ``(column, line)``.
    """
    taken = [(line, column, column) for column, line in places]
    best_first = sorted(range(len(shown)), key=lambda index: not shown[index].is_pareto)
    for index in best_first:
        column, line = places[index]
        name = shortened(printable(shown[index].label), _NAME)
        for side in (1, -1):
            last = column + side * (len(name) + 3)
            begin, end = sorted((column + side, last))
            if begin >= 0 and end <= width and not _is_taken(taken, line, begin, end):
                taken.append((line, begin, end))
                yield index, name, side
                break


def _is_taken(taken: Sequence[tuple[float, float, float]], line: float, begin: float, end: float) -> bool:
    """Return whether a name or a point is already on ``line`` between the columns ``begin`` and ``end``.

    ``taken`` has ``(line, first column, last column)`` of each name and point.
    """
    for other_line, other_begin, other_end in taken:
        if abs(other_line - line) < 1 and other_begin < end and begin < other_end:
            return True
    return False
