"""Checks of a sweep: all that can be known before the first run, which may be hours before the last one."""

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

from nncftools import intake
from nncftools.backports import SAFE_PATH
from nncftools.cli import destination, options
from nncftools.cli.model_folder import config_of
from nncftools.cli.sweep import grid
from nncftools.cli.sweep.grid import Configuration, Weights
from nncftools.cli.sweep.options import SweepOptions
from nncftools.cli.sweep.results import State, SweepFolder, SweepRow, differing, stamp
from nncftools.cli.sweep.runs import Sweep
from nncftools.cli.sweep.steps import CALIBRATION, KIND, LAST_WORDS, MODEL, PROMPTS, TEXT
from nncftools.cli.sweep.worker import evaluation
from nncftools.compression import filling
from nncftools.errors import NncfToolsError, UsageError, refuse_to_record

RUN = 12
"""Two texts that share this many words in a row have a common source."""


def shared(text: str, other: str) -> str:
    """Return the first run of 12 words that is in both texts; empty if they share none."""
    known = set(_runs(other))
    return next((" ".join(run) for run in _runs(text) if run in known), "")


def _runs(text: str) -> Iterator[tuple[str, ...]]:
    words = re.findall(r"\w+", text.casefold())
    return zip(*(itertools.islice(words, start, None) for start in range(RUN)), strict=False)


_INSTALL = "pip install 'nncf-tools[nncf]'"
_OPTIMUM = "see docs/sweep.md: pip install --no-deps optimum-intel, after torch, optimum and transformers"
_FOR_LANGUAGE = (TEXT, CALIBRATION, LAST_WORDS, PROMPTS)
_ASKS_S = 60
_WRITTEN = (".csv", ".md", ".png")


def checked(request: SweepOptions) -> tuple[Sweep, list[str]]:
    """Return what to do, and notes for the user. Raises NncfToolsError for anything that would fail later."""
    refuse_to_record()
    if request.output.suffix != ".csv":
        raise UsageError(f"option --output: a file that ends in .csv expected, found {str(request.output)!r}")
    inputs = dict(request.inputs)
    for name, path in inputs.items():
        with options.naming_option(f"--{name}"):
            if path.exists() and not path.is_file():
                raise UsageError(f"{str(path)!r}: a regular file expected: each configuration reads it again")
            intake.whole(path)
    _check_output(request, inputs)
    configurations: Sequence[Configuration]
    notes: list[str] = []
    code, setup = "", "model"
    if KIND in inputs:
        code = _code(inputs[KIND])
        configurations = _of_kind(request, inputs, code)
    else:
        configurations, notes = _of_language(request, inputs)
        sizes = {weights.group_size for weights in configurations if weights.group_size is not None}
        setup = f"model, group size {sizes.pop()}" if len(sizes) == 1 else "model"
    with options.naming_option("--only"):
        chosen = grid.chosen(configurations, request.only or ())
    needing = next((configuration.name for configuration in chosen if configuration.needs_data), None)
    if needing is not None and CALIBRATION not in inputs:
        raise UsageError(f"option --calibration: a text is needed by {needing!r}; or choose others with --only")
    _check_tasks(request)
    _check_packages(request)
    inputs[MODEL] = request.model
    stamps = {name: stamp(path) for name, path in inputs.items()}
    stamps |= {"tasks": ",".join(request.tasks)} if request.tasks else {}
    model = request.name.strip() or (request.model if request.model.name.strip(".") else request.model.resolve()).name
    folder, state = SweepFolder(request.output), State(model, setup, stamps)
    before = _before(request, folder, state, configurations)
    return Sweep(request, configurations, chosen, folder, state, inputs, code, before), notes


def _code(path: pathlib.Path) -> str:
    """Return the user's file, which is read only once: what was checked is what runs. Raises NncfToolsError."""
    with options.naming_option("--kind"):
        try:
            return importlib.util.decode_source(grid.own_content(path, may_wait=False))
        except (SyntaxError, UnicodeDecodeError) as error:
            raise UsageError(f"{str(path)!r} is not Python source: {error}") from error


def _of_kind(request: SweepOptions, inputs: Mapping[str, pathlib.Path], text: str) -> Sequence[Configuration]:
    for name in _FOR_LANGUAGE:
        if name in inputs:
            raise UsageError(f"option --{name}: for language models; with --kind, your file provides data and score")
    if request.model.suffix not in {".xml", ".onnx"} or not request.model.is_file():
        expected = "with --kind, a file .xml (OpenVINO) or .onnx expected"
        raise UsageError(f"option --model: {expected}, found {str(request.model)!r}")
    try:
        code = compile(text, str(inputs[KIND]), "exec")
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"option --kind: {error}") from error
    for needed in ("calibration", "score"):
        if needed not in code.co_names:
            raise UsageError(f"option --kind: {str(inputs[KIND])!r} has no function {needed!r}")
    with options.naming_option("--grid"):
        return grid.quantization_grid(request.grid)


def _of_language(request: SweepOptions, inputs: Mapping[str, pathlib.Path]) -> tuple[list[Weights], list[str]]:
    if TEXT not in inputs:
        raise UsageError("option --text: a held-out text is needed to measure quality")
    with options.naming_option("--model"):
        if not request.model.is_dir():
            raise UsageError(f"the folder of a language model expected, found {str(request.model)!r}")
        config_of(request.model)
        layers = grid.layers_of(request.model)
    with options.naming_option("--grid"):
        configurations, notes = grid.weight_grid(request.grid, layers)
    words: dict[str, str] = {}
    for name in _FOR_LANGUAGE:
        if name in inputs:
            with options.naming_option(f"--{name}"):
                words[name] = _words(inputs[name])
    for name in (TEXT, LAST_WORDS):
        both = shared(words[CALIBRATION], words[name]) if CALIBRATION in words and name in words else ""
        if both:
            why = f"{str(inputs[name])!r} holds the same words, so results would look too good: {both!r}"
            raise UsageError(f"option --calibration: {why}; use a text of another source")
    return configurations, notes


def _words(path: pathlib.Path) -> str:
    """Return the documents of a file; raise NncfToolsError for lines of a .jsonl without a text, and for no words."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise NncfToolsError(f"{str(path)!r} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise NncfToolsError(f"{str(path)!r} is not a text in UTF-8: {error.reason}") from error
    for number, line in enumerate(text.split("\n"), 1) if path.suffix == ".jsonl" else ():
        try:
            has_text = not line.strip() or isinstance(json.loads(line)["text"], str)
        except (ValueError, TypeError, KeyError, RecursionError):
            has_text = False
        if not has_text:
            raise UsageError(f"{str(path)!r}: line {number}: an object with a text as 'text' expected")
    words = "\n".join(evaluation.documents(str(path)))
    if not words.split():
        raise UsageError(f"{str(path)!r} holds no words")
    return words


def _check_output(request: SweepOptions, inputs: Mapping[str, pathlib.Path]) -> None:
    """Raise UsageError for results that would lie in the model's folder, or replace an input."""
    output = request.output.resolve()
    if request.model.is_dir() and output.is_relative_to(request.model.resolve()):
        why = "is in the folder of the model, which a sweep must not change"
        raise UsageError(f"option --output: {str(request.output)!r} {why}; name another folder")
    for name, path in inputs.items():
        if path.resolve() in {output.with_suffix(ending) for ending in _WRITTEN}:
            raise UsageError(f"option --output: the results would replace the file of --{name}; choose another name")


def _check_tasks(request: SweepOptions) -> None:
    if request.tasks and request.kind is not None:
        raise UsageError("option --tasks: for language models; with --kind, your file provides the score")
    if request.include_path is not None:
        with options.naming_option("--include-path"):
            grid.check_tasks(request.include_path)
    with options.naming_option("--tasks"):
        for name in request.tasks or ():
            if os.sep in name:
                raise UsageError(f"the name of a task expected, found {name!r}; --include-path has tasks of your own")
        filling.tasks_of([name for name in request.tasks or () if ":" in name])


def _check_packages(request: SweepOptions) -> None:
    """Raise NncfToolsError unless the interpreter has what the steps import. A dry run needs nothing of it."""
    if request.dry_run:
        return
    python = request.interpreter
    if shutil.which(python) is None:
        raise UsageError(f"option --python: {python!r} is not a program")
    needs_export = request.kind is None and not (request.model / "openvino_model.xml").exists()
    wanted = ["nncf", "openvino", *(["optimum-intel"] if needs_export else []), *(["lm_eval"] if request.tasks else [])]
    script = (
        f"{SAFE_PATH}; import importlib.metadata as m, json\n"
        "def has(n):\n  try:\n    return bool(m.version(n))\n  except m.PackageNotFoundError:\n    return False\n"
        "print(json.dumps([n for n in sys.argv[1:] if not has(n)]))"
    )
    words = [python, "-c", script, *wanted]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_ASKS_S, check=False)
        missing = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        raise UsageError(f"option --python: {python!r} did not answer within {_ASKS_S} s") from None
    except OSError as error:
        raise UsageError(f"option --python: {python!r} cannot be started: {error.strerror}") from error
    except ValueError:
        raise UsageError(
            f"option --python: {python!r} does not work as a Python interpreter: {done.stderr.strip()}"
        ) from None
    if missing:
        everything = f"{_INSTALL}; {_OPTIMUM}" if needs_export else _INSTALL
        alone = {("lm_eval",): "pip install lm_eval", ("optimum-intel",): _OPTIMUM}
        why = f"{python!r} has no {' and no '.join(missing)}: {alone.get(tuple(missing), everything)}"
        raise NncfToolsError(f"{why}; or name another Python with --python")


def _before(
    request: SweepOptions, folder: SweepFolder, state: State, grid: Sequence[Configuration]
) -> dict[str, SweepRow]:
    """Return the rows of a sweep that is replaced, and remove it. Raises UsageError if it must not be."""
    if folder.is_foreign:
        raise UsageError(
            f"option --output: {str(folder.path)!r} exists and is not the folder of a sweep; choose another name"
        )
    try:
        earlier = folder.state()
    except NncfToolsError as error:
        if not request.force:
            raise UsageError(f"option --output: {error}; give --force to replace it") from error
        earlier = None
    if request.resume and earlier is not None:
        why = differing(earlier, state)
        if why:
            raise UsageError(f"option --resume: {str(folder.path)!r} cannot go on: {why}")
        return {}
    if request.dry_run:
        return {} if earlier is None else folder.rows(grid)
    if earlier is not None and not request.force:
        raise UsageError(f"option --output: {str(folder.path)!r} has a sweep already; use --resume or --force")
    for ending in _WRITTEN:
        destination.check_file("--output", request.output.with_suffix(ending), force=request.force)
    rows: dict[str, SweepRow] = {}
    if folder.path.exists():
        with folder.locked():
            with contextlib.suppress(NncfToolsError):
                rows = folder.rows(grid)
            shutil.rmtree(folder.path)
    return rows
