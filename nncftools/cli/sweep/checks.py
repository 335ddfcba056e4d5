"""Checks before a sweep.

The last run may start hours after the first run, so all mistakes are reported at the beginning.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nncftools import intake
from nncftools.backports import SAFE_PATH
from nncftools.cli import destination, options
from nncftools.cli.model_folder import read_config
from nncftools.cli.sweep import grid
from nncftools.cli.sweep.grid import Configuration, Weights
from nncftools.cli.sweep.results import State, SweepFolder, SweepRow, explain_difference, make_stamp
from nncftools.cli.sweep.runs import Sweep
from nncftools.cli.sweep.steps import CALIBRATION, KIND, LAST_WORDS, MODEL, PROMPTS, TEXT
from nncftools.cli.sweep.worker import evaluation
from nncftools.compression import filling
from nncftools.errors import NncfToolsError, UsageError, refuse_to_record

if TYPE_CHECKING:
    from nncftools.cli.sweep import SweepOptions

RUN = 12
"""Two texts are taken as copies of each other if they share this number of words in a row."""


def find_shared(text: str, other: str) -> str:
    """Return the first 12 words in a row that occur in both texts; empty if there are none."""
    other_runs = set(_split_runs(other))
    return next((" ".join(run) for run in _split_runs(text) if run in other_runs), "")


def _split_runs(text: str) -> Iterator[tuple[str, ...]]:
    words = re.findall(r"\w+", text.casefold())
    shifted = [words[start:] for start in range(RUN)]
    return zip(*shifted, strict=False)


_INSTALL = "pip install 'nncf-tools[nncf]'"
_INSTALL_OTHERS = {
    "lm_eval": "pip install lm_eval",
    "optimum-intel": "see docs/compression-and-sweep.md: "
    "pip install --no-deps optimum-intel, after torch, optimum and transformers",
}
_FOR_LANGUAGE = (TEXT, CALIBRATION, LAST_WORDS, PROMPTS)
_TIMEOUT_S = 60
_ENDINGS = (".csv", ".md", ".png")
"""Suffixes of the files with the results."""


def make_plan(request: SweepOptions) -> tuple[Sweep, list[str]]:
    """Return the sweep with checked options, and notes for the user.

    Raises NncfToolsError for anything that would make the sweep fail later.
    """
    refuse_to_record()
    if request.output.suffix != ".csv":
        raise UsageError(f"option --output: a file that ends in .csv expected, found {str(request.output)!r}")
    inputs = dict(request.inputs)
    for name, path in inputs.items():
        with options.naming_option(f"--{name}"):
            if path.exists() and not path.is_file():
                raise UsageError(f"{str(path)!r}: a regular file expected, because each configuration reads the file")
            intake.read_file(path)
    _check_output(request, inputs)
    configurations: Sequence[Configuration]
    notes: list[str] = []
    code = ""
    setup = "model"
    if KIND in inputs:
        code = _read_code(inputs[KIND])
        configurations = _make_quantizations(request, inputs, code)
    else:
        configurations, notes = _make_weights(request, inputs)
        sizes = {weights.group_size for weights in configurations} - {None}
        if len(sizes) == 1:
            setup = f"model, group size {sizes.pop()}"
    with options.naming_option("--only"):
        chosen = grid.choose(configurations, request.only or ())
    needing = [configuration.name for configuration in chosen if configuration.needs_data]
    if needing and CALIBRATION not in inputs:
        raise UsageError(
            f"option --calibration: {needing[0]!r} needs a text; or choose other configurations with --only"
        )
    _check_tasks(request)
    _check_packages(request)
    inputs[MODEL] = request.model
    stamps = {name: make_stamp(path) for name, path in inputs.items()}
    if request.tasks:
        stamps["tasks"] = ",".join(request.tasks)
    name = request.name.strip() or request.model.absolute().name
    state = State(name, setup, stamps)
    folder = SweepFolder(request.output)
    plan = Sweep(
        options=request,
        grid=configurations,
        chosen=chosen,
        folder=folder,
        state=state,
        inputs=inputs,
        code=code,
        earlier=_take_earlier(request, folder, state, configurations),
    )
    return plan, notes


def _read_code(path: Path) -> str:
    """Return the text of the user's Python file. Raises NncfToolsError.

    The file is read only here, so that the sweep runs the same text that was checked.
    """
    with options.naming_option("--kind"):
        try:
            return importlib.util.decode_source(grid.read_own(path, may_wait=False))
        except (SyntaxError, UnicodeDecodeError) as error:
            raise UsageError(f"{str(path)!r} is not Python source: {error}") from error


def _make_quantizations(request: SweepOptions, inputs: Mapping[str, Path], text: str) -> Sequence[Configuration]:
    for name in _FOR_LANGUAGE:
        if name in inputs:
            raise UsageError(
                f"option --{name}: only for language models; with --kind, your file provides data and score"
            )
    if request.model.suffix not in {".xml", ".onnx"} or not request.model.is_file():
        expected = "with --kind, a file .xml (OpenVINO) or .onnx expected"
        raise UsageError(f"option --model: {expected}, found {str(request.model)!r}")
    try:
        code = compile(text, str(inputs[KIND]), "exec")
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"option --kind: {error}") from error
    for function in ("calibration", "score"):
        if function not in code.co_names:
            raise UsageError(f"option --kind: {str(inputs[KIND])!r} has no function {function!r}")
    with options.naming_option("--grid"):
        return grid.quantization_grid(request.grid)


def _make_weights(request: SweepOptions, inputs: Mapping[str, Path]) -> tuple[list[Weights], list[str]]:
    if TEXT not in inputs:
        raise UsageError("option --text: a held-out text is needed to measure quality")
    with options.naming_option("--model"):
        if not request.model.is_dir():
            raise UsageError(f"the folder of a language model expected, found {str(request.model)!r}")
        read_config(request.model)
        layers = grid.read_layers(request.model)
    with options.naming_option("--grid"):
        configurations, notes = grid.weight_grid(request.grid, layers)
    words: dict[str, str] = {}
    for name in _FOR_LANGUAGE:
        if name in inputs:
            with options.naming_option(f"--{name}"):
                words[name] = _read_words(inputs[name])
    for name in (TEXT, LAST_WORDS):
        shared = find_shared(words.get(CALIBRATION, ""), words.get(name, ""))
        if shared:
            why = f"{str(inputs[name])!r} contains the same words, so results would look too good: {shared!r}"
            raise UsageError(f"option --calibration: {why}; use a text from another source")
    return configurations, notes


def _read_words(path: Path) -> str:
    """Return the text of a file.

    Raises NncfToolsError if the file has no words, or if a line of a .jsonl has no text.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise NncfToolsError(f"{str(path)!r} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise NncfToolsError(f"{str(path)!r} is not a text in UTF-8: {error.reason}") from error
    if path.suffix == ".jsonl":
        for number, line in enumerate(text.split("\n"), 1):
            try:
                has_text = not line.strip() or isinstance(json.loads(line)["text"], str)
            except (ValueError, TypeError, KeyError, RecursionError):
                has_text = False
            if not has_text:
                raise UsageError(f"{str(path)!r}: line {number}: an object with a text as 'text' expected")
    words = "\n".join(evaluation.read_documents(str(path)))
    if not words.split():
        raise UsageError(f"{str(path)!r} contains no words")
    return words


def _check_output(request: SweepOptions, inputs: Mapping[str, Path]) -> None:
    """Raise UsageError if the results would be in the folder of the model, or would replace an input."""
    output = request.output.resolve()
    if request.model.is_dir() and output.is_relative_to(request.model.resolve()):
        why = "is in the folder of the model, which a sweep must not change"
        raise UsageError(f"option --output: {str(request.output)!r} {why}; name another folder")
    for name, path in inputs.items():
        if path.resolve() in {output.with_suffix(ending) for ending in _ENDINGS}:
            raise UsageError(f"option --output: the results would replace the file of --{name}; choose another name")


def _check_tasks(request: SweepOptions) -> None:
    if request.tasks and request.kind is not None:
        raise UsageError("option --tasks: only for language models; with --kind, your file provides the score")
    if request.include_path is not None:
        with options.naming_option("--include-path"):
            grid.check_tasks(request.include_path)
    tasks = request.tasks or ()
    with options.naming_option("--tasks"):
        for name in tasks:
            if os.sep in name:
                raise UsageError(
                    f"the name of a task expected, found {name!r}; for a task of your own, use --include-path"
                )
        filling.parse_tasks([name for name in tasks if ":" in name])


def _check_packages(request: SweepOptions) -> None:
    """Raise NncfToolsError if the Python interpreter lacks a package that the sweep needs.

    For a dry run, packages are not checked.
    """
    if request.dry_run:
        return
    python = request.interpreter
    if shutil.which(python) is None:
        raise UsageError(f"option --python: {python!r} is not a program")
    packages = ["nncf", "openvino"]
    if request.kind is None and not (request.model / "openvino_model.xml").exists():
        packages.append("optimum-intel")
    if request.tasks:
        packages.append("lm_eval")
    script = (
        f"{SAFE_PATH}; import importlib.metadata as m, json\n"
        "def has(n):\n  try:\n    return bool(m.version(n))\n  except m.PackageNotFoundError:\n    return False\n"
        "print(json.dumps([n for n in sys.argv[1:] if not has(n)]))"
    )
    words = [python, "-c", script, *packages]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        missing = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        raise UsageError(f"option --python: {python!r} did not answer within {_TIMEOUT_S} s") from None
    except OSError as error:
        raise UsageError(f"option --python: {python!r} cannot be started: {error.strerror}") from error
    except ValueError:
        raise UsageError(
            f"option --python: {python!r} does not work as a Python interpreter: {done.stderr.strip()}"
        ) from None
    if missing:
        advice = dict.fromkeys(_INSTALL_OTHERS.get(name, _INSTALL) for name in missing)
        why = f"{python!r} has no {' and no '.join(missing)}: {'; '.join(advice)}"
        raise NncfToolsError(f"{why}; or name another Python with --python")


def _take_earlier(
    request: SweepOptions, folder: SweepFolder, state: State, grid: Sequence[Configuration]
) -> dict[str, SweepRow]:
    """Remove the earlier sweep if --force is given; return the rows of the removed sweep.

    For a dry run, return the rows, but remove nothing. Raises UsageError if there is an earlier sweep, but neither
    --force nor --resume.
    """
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
        difference = explain_difference(earlier, state)
        if difference:
            raise UsageError(f"option --resume: {str(folder.path)!r} cannot continue: {difference}")
        return {}
    if request.dry_run:
        return {} if earlier is None else folder.rows(grid)
    if earlier is not None and not request.force:
        raise UsageError(f"option --output: {str(folder.path)!r} has a sweep already; use --resume or --force")
    for ending in _ENDINGS:
        destination.check_file("--output", request.output.with_suffix(ending), force=request.force)
    rows: dict[str, SweepRow] = {}
    if folder.path.exists():
        with folder.locked():
            with contextlib.suppress(NncfToolsError):
                rows = folder.rows(grid)
            shutil.rmtree(folder.path)
    return rows
