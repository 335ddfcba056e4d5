"""Whether a text for calibration holds a part of the text for evaluation.

Checks of a sweep: all that can be known before the first run, which may be hours before the last one.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from nncftools import intake
from nncftools.backports import SAFE_PATH
from nncftools.cli import destination, options
from nncftools.cli.sweep import grid
from nncftools.cli.sweep.grid import Configuration
from nncftools.cli.sweep.results import Folder, Row, State, differing, stamp
from nncftools.cli.sweep.runs import Choices
from nncftools.cli.sweep.steps import CALIBRATION, KIND, LAST_WORDS, MODEL, PROMPTS, TEXT
from nncftools.cli.sweep.worker import evaluation
from nncftools.compression import filling
from nncftools.errors import NncfToolsError, UsageError, refuse_to_record
from nncftools.files import another_owner, open_to_all

RUN = 12
"""So many words in the same order, in both texts, are no accident."""


def shared(one: str, other: str) -> str:
    """Return the first run of 12 words that is in both texts; empty if there is none."""
    known = set(_runs(other))
    return next((" ".join(run) for run in _runs(one) if run in known), "")


def _runs(text: str) -> Iterator[tuple[str, ...]]:
    words = re.findall(r"\w+", text.casefold())
    return zip(*(itertools.islice(words, start, None) for start in range(RUN)), strict=False)


_INSTALL = "pip install 'nncf-tools[nncf]'"
_OPTIMUM = "see docs/sweep.md: pip install --no-deps optimum-intel, after torch, optimum and transformers"
_FOR_LANGUAGE = (TEXT, CALIBRATION, LAST_WORDS, PROMPTS)
_ASKS_S = 60
_WRITTEN = (".csv", ".md", ".png")


@dataclass(frozen=True)
class Asked:
    """The options."""

    model: pathlib.Path
    output: pathlib.Path
    grid: str
    inputs: Mapping[str, pathlib.Path | None]
    only: Sequence[str]
    name: str
    python: str
    max_memory: int | None
    keep_models: bool
    resume: bool
    force: bool
    is_dry: bool
    scheduler: str | None = None
    tasks: Sequence[str] = ()
    include_path: pathlib.Path | None = None


def checked(asked: Asked) -> tuple[Choices, list[str]]:
    """Return what to do, and notes for the user. Raises NncfToolsError for anything that would fail later."""
    refuse_to_record()
    output = asked.output
    if output.suffix != ".csv":
        raise UsageError(f"option --output: a file that ends in .csv expected, found {str(output)!r}")
    inputs = {name: path for name, path in asked.inputs.items() if path is not None}
    for name, path in inputs.items():
        with options.named(f"--{name}"):
            if path.exists() and not path.is_file():
                raise UsageError(f"{str(path)!r}: a file expected, which can be read again for each configuration")
            intake.whole(path)
    _check_place(asked, inputs)
    code = ""
    if KIND in inputs:
        code = _code(inputs[KIND])
        configurations, notes = _of_kind(asked, inputs, code)
        setup = "model"
    else:
        configurations, notes = _of_language(asked, inputs)
        sizes = {found for one in configurations if (found := getattr(one, "group_size", None)) is not None}
        setup = f"model, group size {sizes.pop()}" if len(sizes) == 1 else "model"
    with options.named("--only"):
        chosen = grid.chosen(configurations, asked.only)
    _check_tasks(asked)
    _check_packages(asked)
    state = State(
        model=asked.name or (asked.model if asked.model.name.strip(".") else asked.model.resolve()).name,
        setup=setup,
        inputs={name: stamp(path) for name, path in {**inputs, MODEL: asked.model}.items()}
        | ({"tasks": ",".join(asked.tasks)} if asked.tasks else {}),
    )
    folder = Folder(output)
    before = _before(asked, folder, state, configurations)
    choices = Choices(
        grid=configurations,
        chosen=chosen,
        folder=folder,
        state=state,
        inputs={**inputs, MODEL: asked.model},
        python=asked.python,
        max_memory=asked.max_memory,
        keep_models=asked.keep_models,
        scheduler=asked.scheduler,
        tasks=asked.tasks,
        include_path="" if asked.include_path is None else str(asked.include_path.absolute()),
        code=code,
        again=asked.only,
        before=before,
    )
    return choices, notes


def _code(path: pathlib.Path) -> str:
    """Return the user's file, which is read once: what the checks saw is what runs. Raises NncfToolsError."""
    with options.named("--kind"), intake.open_file(path, may_wait=False) as file:
        found = os.fstat(file.fileno())
        _refuse(path, another_owner(found) or open_to_all(found))
        try:
            return importlib.util.decode_source(intake.content(file, path))
        except (SyntaxError, UnicodeDecodeError) as error:
            raise UsageError(f"{str(path)!r} is no text of Python: {error}") from error


def _refuse(path: pathlib.Path, why: str) -> None:
    """Raise UsageError if there is a reason why another user chooses what runs."""
    if why:
        raise UsageError(f"{str(path)!r} {why}, and decides what runs here; name a copy of your own")


def _of_kind(asked: Asked, inputs: Mapping[str, pathlib.Path], text: str) -> tuple[list[Configuration], list[str]]:
    for name in _FOR_LANGUAGE:
        if name in inputs:
            raise UsageError(f"option --{name}: for language models; with --kind, your file gives data and score")
    if asked.model.suffix not in {".xml", ".onnx"} or not asked.model.is_file():
        expected = "with --kind, a file .xml (OpenVINO) or .onnx expected"
        raise UsageError(f"option --model: {expected}, found {str(asked.model)!r}")
    try:
        code = compile(text, str(inputs[KIND]), "exec")
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"option --kind: {error}") from error
    for needed in ("calibration", "score"):
        if needed not in code.co_names:
            raise UsageError(f"option --kind: {str(inputs[KIND])!r} has no function {needed!r}")
    with options.named("--grid"):
        return list(grid.quantization_grid(asked.grid)), []


def _of_language(asked: Asked, inputs: Mapping[str, pathlib.Path]) -> tuple[list[Configuration], list[str]]:
    if TEXT not in inputs:
        raise UsageError("option --text: a held-out text is needed to measure quality")
    with options.named("--model"):
        if not asked.model.is_dir():
            raise UsageError(f"the folder of a language model expected, found {str(asked.model)!r}")
        grid.config_of(asked.model)
        found = grid.layers_of(asked.model)
    with options.named("--grid"):
        configurations, notes = grid.weight_grid(asked.grid, found)
    with options.named("--only"):
        wanted = grid.chosen(configurations, asked.only)
    needing = next((one.name for one in wanted if one.needs_data), None)
    if needing is not None and CALIBRATION not in inputs:
        raise UsageError(f"option --calibration: a text is needed by {needing!r}; or choose others with --only")
    for name in _FOR_LANGUAGE:
        if name in inputs:
            with options.named(f"--{name}"):
                _check_text(inputs[name])
    _check_overlap(inputs)
    return list(configurations), notes


def _check_text(path: pathlib.Path) -> None:
    """Raise UsageError for a text without words, and for lines of a .jsonl that have no text."""
    text = _text(path)
    if path.suffix == ".jsonl":
        _check_lines(path, text)
    if not any(map(str.split, evaluation.documents(str(path)))):
        raise UsageError(f"{str(path)!r} holds no words")


def _check_lines(path: pathlib.Path, text: str) -> None:
    for number, line in enumerate(text.split("\n"), 1):
        try:
            has_text = not line.strip() or isinstance(json.loads(line)["text"], str)
        except (ValueError, TypeError, KeyError, RecursionError):
            has_text = False
        if not has_text:
            raise UsageError(f"{str(path)!r}: line {number}: an object with a text as 'text' expected")


def _check_overlap(inputs: Mapping[str, pathlib.Path]) -> None:
    if CALIBRATION not in inputs:
        return
    calibration = _words(inputs[CALIBRATION])
    for name in (TEXT, LAST_WORDS):
        found = shared(calibration, _words(inputs[name])) if name in inputs else ""
        if found:
            why = f"{str(inputs[name])!r} holds the same words, so results would look too good: {found!r}"
            raise UsageError(f"option --calibration: {why}; use a text of another source")


def _words(path: pathlib.Path) -> str:
    return "\n".join(evaluation.documents(str(path)))


def _check_place(asked: Asked, inputs: Mapping[str, pathlib.Path]) -> None:
    """Raise UsageError for results that would be among the inputs, or replace one."""
    output = asked.output.resolve()
    if asked.model.is_dir() and output.is_relative_to(asked.model.resolve()):
        why = "is in the folder of the model, which a sweep must not change"
        raise UsageError(f"option --output: {str(asked.output)!r} {why}; name another folder")
    for name, path in inputs.items():
        if path.resolve() in {output.with_suffix(ending) for ending in _WRITTEN}:
            raise UsageError(f"option --output: the results would replace the file of --{name}; choose another name")


def _check_tasks(asked: Asked) -> None:
    if asked.tasks and asked.inputs[KIND] is not None:
        raise UsageError("option --tasks: for language models; with --kind, your file gives the score")
    if asked.include_path is not None:
        with options.named("--include-path"):
            _check_include_path(asked.include_path)
    with options.named("--tasks"):
        for name in asked.tasks:
            if os.sep in name:
                raise UsageError(f"the name of a task expected, found {name!r}; --include-path has tasks of your own")
        filling.tasks_of([name for name in asked.tasks if ":" in name])


def _check_include_path(path: pathlib.Path) -> None:
    """Raise UsageError for tasks that another user could change before they run: they may name functions."""
    if not path.is_dir():
        raise UsageError(f"{str(path)!r} is not a folder")
    folder = path.resolve()
    try:
        for place in (*reversed(folder.parents), folder, *folder.rglob("*")):
            found = place.stat()
            _refuse(place, another_owner(found) or open_to_all(found))
    except OSError as error:
        raise UsageError(f"{str(place)!r} cannot be read: {error.strerror}") from error


def _text(path: pathlib.Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise NncfToolsError(f"{str(path)!r} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise NncfToolsError(f"{str(path)!r} is not a text in UTF-8: {error.reason}") from error


def _check_packages(asked: Asked) -> None:
    """Raise NncfToolsError unless the interpreter has what the steps import. A dry run needs nothing of it."""
    if asked.is_dry:
        return
    if shutil.which(asked.python) is None:
        raise UsageError(f"option --python: {asked.python!r} is not a program")
    needs_export = asked.inputs[KIND] is None and not (asked.model / "openvino_model.xml").exists()
    wanted = ["nncf", "openvino", *(["optimum-intel"] if needs_export else []), *(["lm_eval"] if asked.tasks else [])]
    script = (
        f"{SAFE_PATH}; import importlib.metadata as m, json\n"
        "def has(n):\n  try:\n    return bool(m.version(n))\n  except m.PackageNotFoundError:\n    return False\n"
        "print(json.dumps([n for n in sys.argv[1:] if not has(n)]))"
    )
    done = subprocess.run(
        [asked.python, "-c", script, *wanted], capture_output=True, text=True, timeout=_ASKS_S, check=False
    )
    try:
        missing = json.loads(done.stdout)
    except ValueError:
        raise UsageError(f"option --python: {asked.python!r} is no Python that works: {done.stderr.strip()}") from None
    if missing:
        how = (
            "pip install lm_eval"
            if missing == ["lm_eval"]
            else _OPTIMUM
            if missing == ["optimum-intel"]
            else f"{_INSTALL}; {_OPTIMUM}"
            if needs_export
            else _INSTALL
        )
        found = f"{asked.python!r} has no {' and no '.join(missing)}"
        raise NncfToolsError(f"{found}: {how}; or name another Python with --python")


def _before(asked: Asked, folder: Folder, state: State, configurations: Sequence[Configuration]) -> dict[str, Row]:
    """Return the rows of a sweep that is replaced, and remove it. Raises UsageError if it must not be."""
    if folder.is_foreign:
        raise UsageError(f"option --output: {str(folder.path)!r} is there, and no sweep's; choose another name")
    try:
        earlier = folder.state()
    except NncfToolsError as error:
        if not asked.force:
            raise UsageError(f"option --output: {error}; give --force to replace it") from error
        earlier = None
    if asked.resume and earlier is not None:
        why = differing(earlier, state)
        if why:
            raise UsageError(f"option --resume: {str(folder.path)!r} cannot go on: {why}")
        return {}
    if asked.is_dry:
        return {} if earlier is None else folder.rows(configurations)
    if earlier is not None and not asked.force:
        raise UsageError(f"option --output: {str(folder.path)!r} has a sweep already; use --resume or --force")
    for ending in _WRITTEN:
        destination.replaceable("--output", asked.output.with_suffix(ending), force=asked.force)
    return _removed(folder, configurations) if folder.path.exists() else {}


def _removed(folder: Folder, configurations: Sequence[Configuration]) -> dict[str, Row]:
    """Remove the folder of a sweep, and return its rows. Raises UsageError while a sweep runs in it."""
    rows: dict[str, Row] = {}
    with folder.held():
        with contextlib.suppress(NncfToolsError):
            rows = folder.rows(configurations)
        shutil.rmtree(folder.path)
    return rows
