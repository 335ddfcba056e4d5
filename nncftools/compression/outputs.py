"""Makes the table and the pictures from input files; nothing is written before everything is checked and made."""

from __future__ import annotations

import contextlib
import pathlib
import warnings
from typing import TYPE_CHECKING, NamedTuple

from nncftools.compression.checking import BASELINE, load
from nncftools.compression.columns import STANDARD
from nncftools.compression.errors import ResultsError
from nncftools.compression.failures import failures
from nncftools.compression.figures import require
from nncftools.compression.results import comparisons, differing
from nncftools.compression.table import cells, markdown
from nncftools.files import replacing

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from nncftools.compression.columns import Figure, Metric
    from nncftools.compression.plot import Drawing
    from nncftools.compression.recommending import Bounds
    from nncftools.compression.results import Comparison

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
    from nncftools.compression.plot import draw

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
            raise ResultsError(f"cannot write {str(path)!r}: it is the input", mended_by="folder")
        targets[ending] = target
    return targets


def _contents(
    request: Request, found: Sequence[Comparison], targets: dict[str, pathlib.Path], drawing: Drawing
) -> dict[pathlib.Path, bytes]:
    """Return the content of each file."""
    from nncftools.compression.plot import rendered

    contents = {targets["md"]: (markdown(*cells(found, extra=request.extra)) + failures(found)).encode()}
    for kind in request.formats:
        picture = rendered(drawing, "svg" if kind == "html" else kind)
        if kind == "html":
            from nncftools.compression.page import page

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
