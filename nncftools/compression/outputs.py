"""Makes the outputs from input files; nothing is written before everything is checked and made.

They are a Markdown table that no cell can break, with a list of what failed; pictures; one self-contained page with the
picture, the full row at each point and a sortable table; the rows by column name; and a chart in characters.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import NamedTuple

from nncftools.compression import reading
from nncftools.compression import results as computed
from nncftools.compression.checking import BASELINE, incomparable, load, number
from nncftools.compression.reading import DECIMALS, ERROR, INT4, INT8, LORA_RANK, MODE, RATE, STANDARD, ResultsError
from nncftools.compression.results import (
    USUAL_BOUNDS,
    Bounds,
    Comparison,
    Group,
    Result,
    chosen,
    figure_text,
    left_out_text,
    measured,
    name_in_sentence,
)
from nncftools.files import Folder, replacing
from nncftools.markdown import draw_table, text
from nncftools.units import printable, shortened

_COLUMNS = (MODE, INT4, INT8, LORA_RANK, ERROR, RATE)
MODEL = "model"


def cells(comparisons: Sequence[Comparison], *, extra: bool = False) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the table as plain text; several models get a name column.

    With ``extra``, the files' other columns follow.
    """
    results = [(comparison.name, result) for comparison in comparisons for result in comparison.results]
    more = list(dict.fromkeys(name for _, result in results for name in result.row.extra)) if extra else []
    several = len(comparisons) > 1
    rows = []
    for model, result in results:
        row = result.row
        rank = "" if row.lora_rank is None else str(row.lora_rank)
        texts = [row.mode, percent(row.int4), percent(row.int8), rank, error_text(result.error), rate_text(result.rate)]
        further = [extra_text(name, row.extra.get(name, "")) for name in more]
        rows.append([*([model] if several else []), *texts, *further])
    return [*([MODEL] if several else []), *_COLUMNS, *more], rows


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


def rows(comparisons: Sequence[Comparison], bounds: Bounds | None = None) -> list[dict[str, object]]:
    """Return the details of all results.

    With bounds, ``within bounds`` is None when only unknown figures decide, and ``recommended`` marks each model's best
    choice.
    """
    rows: list[dict[str, object]] = []
    for comparison in comparisons:
        best = chosen(comparison, bounds).best if bounds is not None else None
        for result in comparison.results:
            judged = {} if bounds is None else {"within bounds": bounds.hold(result), "recommended": result is best}
            rows.append(details(comparison, result) | judged)
    return rows


def extra_text(name: str, cell: str) -> str:
    """Return a cell of a further column; the figures of known ones have as many digits as they need."""
    value = number(cell) if name in DECIMALS else None
    return cell if value is None else f"{value:.{DECIMALS[name]}f}"


def _known(name: str, cell: str) -> str | float | None:
    """Return the figure of a known column, None for an empty cell; any other cell as it is."""
    if name not in DECIMALS:
        return cell
    value = number(cell)
    return (cell or None) if value is None else value


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table without a newline at its end.

    It is laid out as NNCF's visualizer does it, so that a published table changes only where figures do.
    """
    headings = [text(name).replace(" ", "<br>") for name in header]
    alignments = ["right" if name == LORA_RANK else "left" for name in header]
    return draw_table(headings, [[text(cell) for cell in row] for row in rows], alignments)


def percent(fraction: float) -> str:
    """Return a fraction as a percentage, with a decimal only when needed."""
    return f"{round(fraction * 100, 1):g}%"


def error_text(error: float) -> str:
    """Return a relative error in percent, below 1,000 % with one decimal."""
    return f"{round(error * 100, 1) + 0.0:,.{int(error < 10)}f}%"  # noqa: PLR2004 — 1,000 %


def rate_text(rate: float) -> str:
    """Return a compression rate: how many times smaller."""
    return f"{rate:.1f}x"


def failures(comparisons: Sequence[Comparison]) -> str:
    """Return a Markdown list of what failed, with the verdicts; empty if nothing did."""
    lines = []
    for comparison in comparisons:
        model = f"{comparison.name}: " if len(comparisons) > 1 else ""
        for failure in comparison.model.failures:
            what = model + failure.mode + (f" ({failure.plot_name})" if failure.plot_name else "")
            lines.append(f"- {text(what)}: {text(failure.verdict)}")
    return "\n\nFailed:\n\n" + "\n".join(lines) if lines else ""


def answers(comparisons: Sequence[Comparison], bounds: Bounds) -> list[str]:
    """Return a line per model: the smallest of its rows within the bounds, and how many rows could not be judged."""
    lines = []
    for comparison in comparisons:
        choice = chosen(comparison, bounds)
        answer = f"No model has {bounds.words}"
        if choice.best is not None:
            figures = ", ".join(_figures(choice.best, bounds))
            answer = f"{name_in_sentence(choice.best)} is the smallest with {bounds.words}: {figures}"
        model = f"{comparison.name}: " if len(comparisons) > 1 else ""
        left_out = f"; {left_out_text(choice)}" if choice.left_out else ""
        lines.append(f"{model}{answer}{left_out}")
    return lines


def _figures(result: Result, bounds: Bounds) -> Iterator[str]:
    """Yield error, size and rate of a result, and its other bounded figures."""
    yield f"error {error_text(result.error)}"
    yield f"{result.row.size:g} Gb"
    if result.group is not Group.BASELINE:
        yield f"{rate_text(result.rate)} smaller"
    for figure in bounds.figures:
        value = measured(result.row, figure) if figure in reading.FIGURES else None
        if value is not None:
            yield f"{figure.name} {figure_text(figure, value.high)}"


_TEMPLATE = pathlib.Path(__file__).with_name("page.html")
_UNSEEN = re.compile(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<metadata>.*?</metadata>|<!--.*?-->", re.DOTALL)
"""The parts of matplotlib's SVG that a page does not need, with the addresses in them."""

_ALL_DIGITS_FROM = 1e5


def page(
    comparisons: Sequence[Comparison], picture: bytes, bounds: Bounds | None = None, *, extra: bool = False
) -> str:
    """Return the page; ``picture`` is the SVG of the same results."""
    header, table = cells(comparisons, extra=extra)
    results = [(comparison, result) for comparison in comparisons for result in comparison.results]
    columns = zip(*table, strict=True)
    are_numbers = (all(number(cell.rstrip("%x")) is not None for cell in column if cell) for column in columns)
    kinds = [' class="number"' if right_aligned else "" for right_aligned in are_numbers]
    asked = bounds or USUAL_BOUNDS
    choices = [chosen(comparison, asked) for comparison in comparisons]
    rows = []
    for line, ((_, result), texts) in enumerate(zip(results, table, strict=True)):
        is_best = any(result is choice.best for choice in choices)
        rows.append(_row(line, result, zip(header, texts, kinds, strict=True), is_best=is_best))
    title = " · ".join(comparison.title for comparison in comparisons)
    said = [f"{answer}." for answer in answers(comparisons, asked)]
    note = " ".join([*said, "Point at a mark to see its full row; click a heading to sort."])
    heading = ""
    for name, kind in zip(header, kinds, strict=True):
        order = ' aria-sort="ascending"' if name == ERROR else ""
        heading += f'<th scope="col"{kind}{order}><button type="button">{_text(name)}</button></th>'
    data = [[[name, _plain(value)] for name, value in details(*each).items()] for each in results]
    parts = {
        "TITLE": _text(title),
        "NOTE": _text(note),
        "PICTURE": _UNSEEN.sub("", picture.decode()).strip(),
        "HEADER": heading,
        "ROWS": "\n".join(rows),
        "DATA": json.dumps(data, ensure_ascii=True).replace("<", "\\u003c"),  # nothing closes the script element
    }
    template = _TEMPLATE.read_text(encoding="utf-8")
    return re.sub("@([A-Z]+)@", lambda match: parts[match[1]], template)


def _row(number: int, result: Result, cells: Iterable[tuple[str, str, str]], *, is_best: bool) -> str:
    """Return a table row; ``cells`` are column names, texts and attributes."""
    classes = [*([] if result.is_pareto else ["dominated"]), *(["recommended"] if is_best else [])]
    row = result.row
    exact = {ERROR: result.error, RATE: result.rate, INT4: row.int4, INT8: row.int8}
    columns = "".join(
        f'<td{kind} data-value="{_text(repr(exact[name]) if name in exact else text)}">{_text(text)}</td>'
        for name, text, kind in cells
    )
    return f'<tr data-row="{number}" class="{" ".join(classes)}">{columns}</tr>'


def _text(text: str) -> str:
    return escape(printable(" ".join(text.split())))


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
    metrics: Sequence[reading.Metric] = ()
    """What the errors are averaged over; nothing for what the columns of the files are."""
    lenient: bool = False
    """Modes may be missing without a note."""
    extra: bool = False
    bounds: Bounds | None = None
    also: Sequence[reading.Cost] = ()
    """What further panels of the picture show."""
    max_error: float | None = None
    """Results with a larger error are not drawn."""


class Visualization(NamedTuple):
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


def make(request: Request) -> Visualization:
    """Make and write the outputs. Raises ResultsError; nothing is written then."""
    from nncftools.compression.picture import draw, rendered

    sources: Sequence[pathlib.Path | reading.RawTable] = request.inputs
    metrics = request.metrics
    reasons: dict[reading.Metric, str] = {}
    if not metrics:
        with contextlib.suppress(ResultsError):  # load says what is wrong with each file
            sources = [reading.read(path) for path in request.inputs]
        tables = [source for source in sources if isinstance(source, reading.RawTable)]
        found = reading.found_metrics(tables)
        reasons = incomparable(tables, found)
        metrics = [metric for metric in found if metric not in reasons]
    left_out = [f"{metric.column} is left out of the error: {why}" for metric, why in reasons.items()]
    if not metrics:
        raise ResultsError(f"no figure can be compared; {'; '.join(left_out)}")
    models = load(sources, metrics)
    computed.require(models, [*(request.bounds.figures if request.bounds else ()), *request.also])
    comparisons = computed.comparisons(models, metrics)
    targets = _targets(request)
    drawing = draw(comparisons, request.bounds, request.max_error, request.also)
    table = markdown(*cells(comparisons, extra=request.extra)) + failures(comparisons)
    contents = {targets["md"]: table.encode()}
    for kind in request.formats:
        picture = rendered(drawing, "svg" if kind == "html" else kind)
        if kind == "html":
            picture = page(comparisons, picture, request.bounds, extra=request.extra).encode()
        contents[targets[kind]] = picture
    write(contents)
    notes = _notes(comparisons, drawing.unnamed, lenient=request.lenient)
    if not request.metrics and set(metrics) != set(STANDARD):
        notes.insert(0, f"the error is the average of {'; '.join(metric.column for metric in metrics)}")
    notes += left_out
    return Visualization(comparisons, list(contents), notes, drawing.left_out)


def _targets(request: Request) -> dict[str, pathlib.Path]:
    """Return the file to write for each ending. Raises ResultsError for one that must not be replaced."""
    first = request.inputs[0]
    folder = first.parent if request.folder is None else request.folder
    stem = "+".join(dict.fromkeys(path.stem for path in request.inputs))[:100]
    targets = {ending: folder / f"{stem}.{ending}" for ending in dict.fromkeys(("md", *request.formats))}
    for path in targets.values():
        if path.exists() and any(path.samefile(source) for source in request.inputs):
            raise ResultsError(f"cannot write {str(path)!r}: it is the input", remedy="folder")
    return targets


def write(contents: dict[pathlib.Path, bytes]) -> None:
    """Write all files or none: they are renamed into place only when all are complete. Raises ResultsError."""
    path = next(iter(contents))
    try:
        Folder(path.parent, make=True).close()
        with contextlib.ExitStack() as stack:
            for path, content in contents.items():
                stack.enter_context(replacing(path)).write(content)
    except OSError as error:
        raise ResultsError(f"cannot write {str(path)!r}: {error.strerror or error}") from error


def _notes(comparisons: Sequence[Comparison], unnamed: int, *, lenient: bool) -> list[str]:
    notes = []
    for comparison in comparisons:
        model = comparison.model
        if model.missing and not lenient:
            notes.append(f"{comparison.name}: no row with {', '.join(model.missing)}; the others are compared")
        if model.repeated:
            first, *others = (row.number for row in (model.baseline, *model.repeated))
            which = f"rows {first}, {', '.join(map(str, others))} are all {BASELINE}"
            notes.append(f"{comparison.name}: {which}; row {first} is the baseline")
        notes += [
            f"{comparison.name}: column {column!r} does not match the figures of its rows; the computed one is shown"
            for column in computed.differing(comparison)
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
_ROOM = 0.12
"""Right of the largest error, as a share of the axis."""
_ROOM_FOR_LABELS = 70
"""So many columns hold the labels of both axes in one line."""
_PLAIN = str.maketrans({"─": "-", "│": "|", **dict.fromkeys("┌┐└┘├┤┬┴┼", "+")})
_BEST, _OTHER = "●○", "@o"


def chart(comparison: Comparison, max_error: float | None, width: int, height: int, *, unicode: bool) -> str:
    """Return a chart of ``height`` lines and ``width`` columns: filled points are on the Pareto front.

    Names that would cover others are left out: the table has them.
    """
    import plotext
    from matplotlib.ticker import MaxNLocator

    shown = [result for result in comparison.results if max_error is None or result.error <= max_error]
    plotext.terminal.limit(False, False)  # noqa: FBT003 — width and height
    figure = plotext.figure
    figure.clear()
    figure.plot_size(width, height)
    figure.theme("colorless")
    figure.title(printable(comparison.title))
    figure.label("average relative error, %" if width >= _ROOM_FOR_LABELS else "error, %", "x")
    figure.label("compression rate" if width >= _ROOM_FOR_LABELS else "rate", "y")
    errors = [result.error * 100 for result in shown]
    begin, end = min(0.0, *errors), max(1.0, *errors)
    end += (end - begin) * _ROOM
    rates = [result.rate for result in shown]
    for name, ends, room in (("x", (begin, end), width // 12), ("y", (min(rates), max(rates)), height // 3)):
        places = MaxNLocator(room, steps=(1, 2, 2.5, 5, 10)).tick_values(*ends)
        ticks = [place for place in places if ends[0] <= place <= ends[1]]
        figure.ruler(name).ticks(ticks, [f"{place:,.10g}" for place in ticks])
    figure.ruler("x").lim(begin, end)
    for is_best in (False, True):
        points = [result for result in shown if result.is_pareto is is_best]
        at, rates = [result.error * 100 for result in points], [result.rate for result in points]
        marker = plotext.marker((_BEST if unicode else _OTHER)[not is_best], plotext.pixel())
        figure.draw(figure.signal(at, rates, marker=marker))
    column = (end - begin) / max(1, width - _AXIS)
    for result, name, side in _named(shown, (begin, end), column, height):
        alignment = "left" if side > 0 else "right"
        figure.draw(figure.text(result.error * 100 + 2 * side * column, result.rate, name, alignment=alignment))
    built: str = figure.build().string(colorless=True)
    drawn = built if unicode else built.translate(_PLAIN)
    return "".join(f"{line.rstrip()}\n" for line in drawn.rstrip("\n").split("\n"))


def _named(
    shown: Sequence[Result], ends: tuple[float, float], column: float, height: int
) -> Iterator[tuple[Result, str, int]]:
    """Yield the results whose names have room right (1) or left (-1) of their points, those of the front first."""
    rates = [result.rate for result in shown]
    line = (max(rates) - min(rates)) / max(1, height - _AROUND) or 1.0

    def at_column(result: Result) -> float:
        return (result.error * 100 - ends[0]) / column

    taken = [(result.rate / line, at_column(result), at_column(result)) for result in shown]
    most = (ends[1] - ends[0]) / column
    for result in sorted(shown, key=lambda result: not result.is_pareto):
        name = shortened(printable(result.label), _NAME)
        row, at = result.rate / line, at_column(result)
        for side in (1, -1):
            begin, end = sorted((at + side, at + side * (len(name) + 3)))
            near = [other for other in taken if abs(other[0] - row) < 1 and other[1] < end and begin < other[2]]
            if begin >= 0 and end <= most and not near:
                taken.append((row, begin, end))
                yield result, name, side
                break
