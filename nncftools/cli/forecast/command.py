"""``nncf-tools forecast``: the needs of a command with a model, from runs with slices of the model.

The words for model and output are never guessed: an export of a slice in place of a real export would be a loss.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from nncftools.cli import options
from nncftools.cli.model_folder import CONFIG
from nncftools.cli.parameters import READ, RUN, WRITE, File, Texts, option, with_options
from nncftools.errors import UsageError
from nncftools.units import bytes_from, seconds_from


def _limit(text: str) -> int | None:
    """Return the size of a machine in bytes; of this one as far as it is available, None for unknown."""
    from nncftools.limits import needs

    return needs.available("/proc", os.getpid()).least if text == "here" else bytes_from(text)


@dataclass(frozen=True, kw_only=True)
class ForecastOptions(options.SeriesRequest):
    """What to run with slices of which model, and for which machine."""

    words: Annotated[Texts, options.command_words("{output} in it is what it writes.")] = None
    model: Annotated[
        str | None, option("--model ARG", READ, "The argument that is the model's folder, where that is not clear.")
    ] = None
    from_config: Annotated[
        bool, option("--from-config", READ, "Random weights by config.json: the model need not be there.")
    ] = False
    time: Annotated[
        float, option("--time TIME", RUN, "The most time that the slices may take: 90s, 10min.", parser=seconds_from)
    ] = 600
    limit: Annotated[
        int | None, option("--for SIZE|here", RUN, "Say whether it fits: 16GiB, or this machine.", parser=_limit)
    ] = None
    no_output: Annotated[bool, option("--no-output", RUN, "The command writes nothing.")] = False
    scratch: Annotated[
        File, option("--scratch DIR", WRITE, "Where slices and their outputs are while they are used. Default: TMPDIR.")
    ] = None
    interval: options.Interval = 0.05


OUTPUT = "{output}"
QEFF_HOME = "$QEFF_HOME"
"""Where QEfficient keeps what it exports and compiles, by the name of the model."""
_EXPORTS = ["optimum-cli", "export", "openvino"], ["optimum-cli", "export", "onnx"]
_LATEST = 6
"""The format is one of the first words: of ``env A=B python optimum-cli export onnx`` the last one."""
_LARGE = 1_000_000_000
_INT8 = "--weight-format", "int8"
"""optimum-intel exports larger models so unless --weight-format is given (``_main_quantize`` of its exporter)."""
_LARGEST_ONNX = 2 << 30
"""A protobuf cannot be larger: weights of a larger model go to files of their own."""
_FLAGS = {
    *("--trust-remote-code", "--disable-stateful", "--disable-convert-tokenizer", "--convert-tokenizer", "--sym"),
    *("--all-layers", "--awq", "--scale-estimation", "--gptq", "--lora-correction", "--smooth-quant-disable"),
    *("--monolith", "--fp16", "--no-post-process", "--no-dynamic-axes", "--slim", "--stateful", "--verbose"),
}
"""The options of optimum-cli that take no value."""
_SECOND_OUTPUT = "--quantization-statistics-path"


@dataclass(frozen=True)
class Command:
    """A command with its places for model and output."""

    words: Sequence[str]
    model: str
    """The folder, as it is written in the command."""
    output: str | None
    """The same of what the command writes; None if it writes nothing."""
    added: Sequence[str] = ()
    """Options that the command would choose by the size of the whole model, and not by that of a slice."""

    def with_slice(self, folder: pathlib.Path, output: pathlib.Path) -> list[str]:
        """Return the command with a slice and an output of our own in place of the real ones."""
        words = [_replaced(word, self.model, str(folder)) for word in [*self.words, *self.added]]
        if self.output is not None:
            words = [_replaced(word.replace(OUTPUT, str(output)), self.output, str(output)) for word in words]
        return ["env", f"{QEFF_HOME[1:]}={output}", *words] if self.output == QEFF_HOME else words


def _replaced(word: str, old: str, new: str) -> str:
    """Replace a word, or what stands after the equals sign of an option."""
    name, is_option, value = word.partition("=")
    if word == old:
        return new
    return f"{name}={new}" if is_option and value == old else word


def find(words: Sequence[str], model: str | None, *, writes: bool) -> Command:
    """Return a command with its places for model and output. Raises UsageError where they are not certain."""
    has_mark = any(OUTPUT in word for word in words)
    if has_mark and not writes:
        raise UsageError(f"option --no-output: the command has {OUTPUT}, so it writes something")
    if has_mark or not writes:
        output = OUTPUT if has_mark else None
    elif any(word.startswith("QEfficient.") for word in words):
        output = QEFF_HOME
    elif (output := _only_word(_of_optimum(words))) is None:
        how = f"write {OUTPUT} in its place in the command, or give --no-output if it writes nothing"
        raise UsageError(f"argument COMMAND: it is not known where {words[0]!r} writes; {how}")
    elif sum(_replaced(word, output, OUTPUT) != word for word in words) > 1:
        raise UsageError(f"argument COMMAND: {output!r} is in several arguments; write {OUTPUT} where it is the output")
    return Command(words, _model([word for word in words[1:] if word != output], model), output)


def _model(words: Sequence[str], model: str | None) -> str:
    found = dict.fromkeys(part for word in words for part in (word, word.partition("=")[2]) if part)
    if model is not None and model not in found:
        raise UsageError(f"option --model: no argument of the command is {model!r}")
    folders = [word for word in found if model in {None, word} and _is_model(word)]
    if len(folders) == 1:
        return folders[0]
    if model is None:
        which = " or ".join(map(repr, folders)) if folders else f"no argument is a folder with {CONFIG}"
        raise UsageError(f"argument COMMAND: its model is not known: {which}; name it with --model ARG")
    hint = "forecast needs a folder; for a model that is not downloaded, put its config.json and tokenizer there"
    raise UsageError(f"option --model: {model!r} is no folder with {CONFIG}; {hint}")


def _is_model(word: str) -> bool:
    return "\0" not in word and os.path.isfile(os.path.join(word, CONFIG))  # noqa: PTH113, PTH118 — may be too long


def _of_optimum(words: Sequence[str]) -> Sequence[str]:
    """Return the words of an export by optimum-cli from its format on; none of another command."""
    for at in range(2, min(len(words), _LATEST)):
        if [pathlib.PurePath(words[at - 2]).name, *words[at - 1 : at + 1]] in _EXPORTS:
            return words[at:]
    return ()


def _only_word(words: Sequence[str]) -> str | None:
    """Return the only word of an export that belongs to no option: its output. None if that is not certain."""
    left, following = [], iter(words[1:])
    for word in following:
        if not word.startswith("-"):
            left.append(word)
        elif "=" not in word and word not in _FLAGS and next(following, None) is None:
            return None
    return left[0] if len(left) == 1 and not any(word.startswith(_SECOND_OUTPUT) for word in words) else None


def by_size(command: Command, parameters: int, weights: int) -> tuple[Command, list[str]]:
    """Return a command with the options that it would choose for a model of this size, and notes on such rules."""
    export = _of_optimum(command.words)
    has_format = any(word.partition("=")[0] in {"--weight-format", "--quant-mode"} for word in export)
    if "onnx" in export[:1] and weights > _LARGEST_ONNX:
        large = "ONNX above 2 GB keeps weights in files of their own; slices below do not: the forecast is less sure"
        return command, [large]
    if "openvino" in export[:1] and parameters >= _LARGE and not has_format:
        note = f"optimum exports models above 1 B parameters to int8 ({parameters / 1e9:.2f} B here), slices not"
        return replace(command, added=_INT8), [f"{note}: {' '.join(_INT8)} is added"]
    return command, []


@with_options(ForecastOptions)
def forecast(request: ForecastOptions) -> int:
    """Forecast what a command needs with a model, from runs with a few of its layers.

    \b
    Examples:
      nncf-tools forecast -- optimum-cli export openvino -m DIR OUT
      nncf-tools forecast --for 16GiB -- optimum-cli export openvino -m DIR OUT
      nncf-tools forecast -- python compress.py DIR {output}
      nncf-tools forecast --no-output -- python generate.py DIR
      nncf-tools forecast --from-config -- optimum-cli export openvino -m DIR OUT
      nncf-tools forecast --output llama --resume -- ./export.sh DIR {output}

    The command runs three or four times, each time with a slice of the model in
    place of the model, and with a scratch folder in place of its output. Nothing
    else of the command is changed. The exit status is 1 if --for does not fit, or
    if it is not known; 0 otherwise; 130 after Ctrl-C, with the forecast so far.
    """
    from nncftools.cli import planning
    from nncftools.cli.forecast import runs, slices

    argv = planning.target(options.Request(words=request.words))
    request.check_resume()
    if request.scratch is not None and not request.scratch.is_dir():
        raise UsageError(f"option --scratch: {str(request.scratch)!r} is not a folder")
    command = find(argv, request.model, writes=not request.no_output)
    model = slices.read(pathlib.Path(command.model), argv, from_config=request.from_config)
    command, notes = by_size(command, model.parameters, model.size(model.layers))
    return runs.run(request, command, model, runs.begin_result(request, command, model, notes))
