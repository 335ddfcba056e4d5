"""The options of ``forecast``, and the words of the command to replace: the model's folder and the output's path.

These words are never guessed: a wrong guess could replace a real export by the export of a slice (the model with only
some of its layers).
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from nncftools.cli import options
from nncftools.cli.model_folder import CONFIG
from nncftools.cli.parameters import READ, RUN, WRITE, File, Texts, option
from nncftools.errors import UsageError
from nncftools.units import bytes_from, seconds_from


def _limit(text: str) -> int | None:
    """Parse the value of ``--for``, a size, and return bytes.

    ``here`` means the memory that is available on this machine; None if that is unknown.
    """
    from nncftools.limits import needs

    return needs.available("/proc", os.getpid()).least if text == "here" else bytes_from(text)


@dataclass(frozen=True, kw_only=True)
class ForecastOptions(options.SeriesRequest):
    """The options of `forecast`."""

    words: Annotated[Texts, options.command_words("{output} is the path of the output.")] = None
    model: Annotated[
        str | None, option("--model ARG", READ, "The argument that is the model's folder, if forecast cannot find it.")
    ] = None
    from_config: Annotated[
        bool, option("--from-config", READ, "Use random weights: config.json is enough, without the model's weights.")
    ] = False
    time: Annotated[
        float, option("--time TIME", RUN, "The most time that the slices may take: 90s, 10min.", parser=seconds_from)
    ] = 600
    limit: Annotated[
        int | None,
        option(
            "--for SIZE|here",
            RUN,
            "Say whether the run fits into this memory: 16GiB, or here (this machine).",
            parser=_limit,
        ),
    ] = None
    no_output: Annotated[bool, option("--no-output", RUN, "The command writes nothing.")] = False
    scratch: Annotated[
        File, option("--scratch DIR", WRITE, "Folder for slices and outputs until they are removed. Default: TMPDIR.")
    ] = None
    interval: options.Interval = 0.05


OUTPUT = "{output}"
QEFF_HOME = "$QEFF_HOME"
"""The folder in which QEfficient keeps exports and compiled programs. Each model has a subfolder."""
_EXPORTS = (["optimum-cli", "export", "openvino"], ["optimum-cli", "export", "onnx"])
_LATEST = 6
"""The format of an export, such as ``onnx``, is searched only in this many words from the beginning of the command. In
``env A=B python optimum-cli export onnx``, it is the sixth word.
"""
_LARGE = 1_000_000_000
_INT8 = ("--weight-format", "int8")
"""optimum-intel adds these words for a model with ``_LARGE`` parameters or more, unless --weight-format is given
(``_main_quantize`` of the exporter).
"""
_LARGEST_ONNX = 2 << 30
"""Largest size of a protobuf file in bytes. The weights of a larger model go to separate files."""
_FLAGS = {
    *("--trust-remote-code", "--disable-stateful", "--disable-convert-tokenizer", "--convert-tokenizer", "--sym"),
    *("--all-layers", "--awq", "--scale-estimation", "--gptq", "--lora-correction", "--smooth-quant-disable"),
    *("--monolith", "--fp16", "--no-post-process", "--no-dynamic-axes", "--slim", "--stateful", "--verbose"),
}
"""The options of optimum-cli that take no value."""
_SECOND_OUTPUT = "--quantization-statistics-path"


@dataclass(frozen=True)
class Command:
    """A command, and the words in it that are replaced: the model and the output."""

    words: Sequence[str]
    model: str
    """The path of the model's folder, as written in the command."""
    output: str | None
    """The path of the output, as written in the command; None without output."""
    added: Sequence[str] = ()
    """Options to add to the command. The program would choose them itself for the whole model, but not for a slice (a
    model with only some of the layers), because a slice is smaller.
    """

    def with_slice(self, folder: pathlib.Path, output: pathlib.Path) -> list[str]:
        """Return the words of the command. ``folder`` replaces the model, and ``output`` replaces the output."""
        words = []
        for word in [*self.words, *self.added]:
            marked = _replace_word(word, self.model, str(folder)).replace(OUTPUT, str(output))
            words.append(_replace_word(marked, self.output, str(output)))
        return ["env", f"{QEFF_HOME[1:]}={output}", *words] if self.output == QEFF_HOME else words


def _replace_word(word: str, old: str | None, new: str) -> str:
    """Return ``new`` for the word ``old``, and ``--name=new`` for ``--name=old``; return any other word unchanged."""
    name, is_option, value = word.partition("=")
    if word == old:
        return new
    return f"{name}={new}" if is_option and value == old else word


def find(words: Sequence[str], model: str | None, *, writes: bool) -> Command:
    """Find the words for model and output in a command. Raises UsageError if one of them is not certain."""
    has_mark = any(OUTPUT in word for word in words)
    if has_mark and not writes:
        raise UsageError(f"option --no-output: the command has {OUTPUT}, so there is an output")
    if has_mark or not writes:
        output = OUTPUT if has_mark else None
    elif any(word.startswith("QEfficient.") for word in words):
        output = QEFF_HOME
    else:
        output = _find_output(words)
    others = [word for word in words[1:] if word != output]
    return Command(words, _find_model(others, model), output)


def _find_output(words: Sequence[str]) -> str:
    """Return the output's path in an export by optimum-cli. Raises UsageError if it is not certain."""
    output = _only_word(_words_of_export(words))
    if output is None:
        raise UsageError(
            f"argument COMMAND: it is not known where {words[0]!r} writes; in the command, replace the path of the "
            f"output by {OUTPUT}, or give --no-output if it writes nothing"
        )
    if sum(_replace_word(word, output, OUTPUT) != word for word in words) > 1:
        raise UsageError(
            f"argument COMMAND: {output!r} is in several arguments; write {OUTPUT} for the one that is the output"
        )
    return output


def _find_model(words: Sequence[str], model: str | None) -> str:
    parts = []
    for word in words:
        parts += [word, word.partition("=")[2]]
    if model is not None and model not in parts:
        raise UsageError(f"option --model: no argument of the command is {model!r}")
    candidates = dict.fromkeys(parts) if model is None else [model]
    folders = list(filter(_is_model, candidates))
    if len(folders) == 1:
        return folders[0]
    if model is None:
        several = " or ".join(map(repr, folders)) if folders else f"no argument is a folder with {CONFIG}"
        raise UsageError(f"argument COMMAND: its model is not known: {several}; name it with --model ARG")
    raise UsageError(
        f"option --model: {model!r} is not a folder with {CONFIG}; forecast needs a folder; "
        "for a model that is not downloaded, put its config.json and tokenizer there"
    )


def _is_model(word: str) -> bool:
    is_path = word != "" and "\0" not in word
    return is_path and os.path.isfile(os.path.join(word, CONFIG))  # noqa: PTH113, PTH118 — may be too long


def _words_of_export(words: Sequence[str]) -> Sequence[str]:
    """Return the words after ``optimum-cli export``; empty for other commands.

    The first word is the format: ``["onnx", "-m", "DIR", "OUT"]``.
    """
    for index in range(2, min(len(words), _LATEST)):
        program = pathlib.PurePath(words[index - 2]).name
        if [program, words[index - 1], words[index]] in _EXPORTS:
            return words[index:]
    return ()


def _only_word(words: Sequence[str]) -> str | None:
    """Return the only word of an export that is neither an option nor the value of an option: the path of the output.

    None if there is not exactly one such word, or if an option has a second output.
    """
    free = []
    following = iter(words[1:])
    for word in following:
        if word.startswith(_SECOND_OUTPUT):
            return None
        if not word.startswith("-"):
            free.append(word)
        elif "=" not in word and word not in _FLAGS and next(following, None) is None:
            return None
    return free[0] if len(free) == 1 else None


def by_size(command: Command, parameters: int, weights: int) -> tuple[Command, list[str]]:
    """Add the options that the program would choose for a model of this size; return the command, and notes.

    ``parameters`` is the number of parameters, and ``weights`` is the size of the weights in bytes.
    """
    export = _words_of_export(command.words)
    names = {word.partition("=")[0] for word in export}
    has_format = not names.isdisjoint({"--weight-format", "--quant-mode"})
    if "onnx" in export[:1] and weights > _LARGEST_ONNX:
        large = (
            "an ONNX model above 2 GB has weights in separate files, but smaller slices do not: "
            "the forecast is less sure"
        )
        return command, [large]
    if "openvino" in export[:1] and parameters >= _LARGE and not has_format:
        note = (
            f"optimum exports models above 1 B parameters to int8 ({parameters / 1e9:.2f} B here), but not smaller "
            f"slices, so {' '.join(_INT8)} is added"
        )
        return replace(command, added=_INT8), [note]
    return command, []
