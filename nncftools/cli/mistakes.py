"""What to say to a command line that cannot be understood: what is wrong, what was probably meant, where to look."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from nncftools.errors import UsageError
from nncftools.units import guess

_OTHER_WORDS = {"version": "--version", "record": "monitor", "run": "profile", "diff": "compare", "ls": "list"}
_OTHER_WORDS |= dict.fromkeys(("view", "show", "open", "plot"), "report") | dict.fromkeys(("rm", "clean"), "prune")
"""Words of other programs for what we call differently."""
_FORMATS = {f"--{name}": name for name in ("html", "json", "csv", "markdown", "text")} | {"--md": "markdown"}
_REMOVED = {
    "--source": "the platform decides: /proc on Linux, psutil on macOS",
    "--pss-budget": "PSS and USS take at most 1% of the time",
    "--max-samples": "beyond 1,000,000 samples, neighbours are merged, and peaks stay exact",
    "--max-size": "files up to 2 GiB are read",
    "--swap": "runs have no swap",
    "--give-up": "a run ends after five times the time without a limit",
    "--tolerance": "limits are found to 3%",
    "--slower": "full speed is up to 1.1 times the time without a limit",
}
"""By option that is gone, what to do or what happens instead."""
_SHORTEST = len("--to")


def explained(error: Any, context: Any) -> UsageError:
    """Return our error for one of Click's parser: an unknown option, or one with a value too few or too many."""
    see = f"see `{context.command_path} --help`"
    option = getattr(error, "option_name", None)
    if option is None:
        return UsageError(f"{error.message}; {see}")
    if option in _REMOVED:
        return UsageError(f"option {option}: removed; {_REMOVED[option]}")
    if hasattr(error, "possibilities"):
        return UsageError(f"`{context.command_path}` has no option {option}; {_instead(option, context)}")
    parameters = context.command.get_params(context)
    is_flag = any(parameter.is_flag for parameter in parameters if option in _names(parameter))
    return UsageError(f"option {option}: {'no value' if is_flag else 'a value'} expected; {see}")


def unexpected(words: Sequence[str], context: Any) -> UsageError:
    """Return the error for words after the last argument."""
    noun = "argument" if len(words) == 1 else "arguments"
    return UsageError(f"unexpected {noun} {', '.join(map(repr, words))}; see `{context.command_path} --help`")


def unknown_command(word: str, program: str, commands: Iterable[str], rest: Iterable[str]) -> UsageError:
    """Return the error for a first word that is no subcommand."""
    known = list(commands)
    if word in _OTHER_WORDS:
        instead = " ".join((_OTHER_WORDS[word], *rest))
    elif shutil.which(word) or os.path.isfile(word):  # noqa: PTH113 — a name may be too long
        instead = " ".join(("profile", word, *rest))
    else:
        instead = guess(word, known)
    hint = f"did you mean `{program} {instead}`?" if instead else f"see `{program} --help`"
    return UsageError(f"there is no command {word!r}; {hint}")


def _instead(option: str, context: Any) -> str:
    own = [name for parameter in context.command.get_params(context) for name in _names(parameter)]
    if "--format" in own and (known := _FORMATS.get(option)):
        return f"did you mean --format {known}?"
    if "--interval" in own and option in {"--gpu", "--cpu", "--io", "--disk"}:
        return "all that this machine offers is recorded without an option: `nncf-tools metrics`"
    see = f"see `{context.command_path} --help`"
    by_word = {name.lstrip("-"): name for name in own}
    shorter = [name for name in own if option.startswith(name) and len(name) > _SHORTEST]
    near = by_word.get(guess(option.lstrip("-"), by_word)) or next(iter(shorter), "")
    if near:
        return f"did you mean {near}?"
    others = [name for name, names in _of_others(context) if option in names]
    return f"`{others[0]}` has it; {see}" if others else see


def _of_others(context: Any) -> Iterator[tuple[str, set[str]]]:
    root = context.find_root()
    for name in getattr(root.command, "list_commands", lambda _: ())(root):
        command = root.command.get_command(root, name)
        yield name, {option for parameter in command.get_params(context) for option in _names(parameter)}


def _names(parameter: Any) -> list[str]:
    return [*parameter.opts, *parameter.secondary_opts] if parameter.param_type_name == "option" else []
