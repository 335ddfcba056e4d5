"""What to say to a command line that cannot be understood: what is wrong, what was probably meant, where to look."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from typing import Any

from nncftools.errors import UsageError
from nncftools.units import guess

_OTHER_WORDS = {"version": "--version", "record": "monitor", "run": "profile", "diff": "compare", "ls": "list"}
_OTHER_WORDS |= dict.fromkeys(("view", "show", "open", "plot"), "report") | dict.fromkeys(("rm", "clean"), "prune")
"""Words of other programs for what we call differently."""
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
_INSTEAD = {f"--{name}": f"`nncf-tools report --format {name}` writes it" for name in ("html", "json", "csv", "text")}
_INSTEAD |= {f"--{name}": "what this machine offers is recorded: `nncf-tools metrics`" for name in ("gpu", "cpu", "io")}
_INSTEAD |= {"--pid": "`nncf-tools monitor --pid` records a running process"}
"""By option that a command does not have, what to use."""
_ALIKE = 0.6
"""How similar an option must be to a mistyped one, without the dashes."""


def explain(error: Any) -> UsageError:
    """Return our error for one of Click's: an unknown option, or too few or too many words."""
    option = getattr(error, "option_name", "")
    if option in _REMOVED:
        return UsageError(f"option {option}: removed; {_REMOVED[option]}")
    hint = f"see `{error.ctx.command_path if error.ctx else 'nncf-tools COMMAND'} --help`"
    if hasattr(error, "possibilities"):  # Click's own are too far-fetched: --repeat for --depth
        names = [name.lstrip("-") for parameter in error.ctx.command.params for name in parameter.opts]
        near = guess(option.lstrip("-"), names, _ALIKE)
        hint = _INSTEAD.get(option) or (f"did you mean --{near}?" if near else hint)
    return UsageError(f"{error.message.rstrip('.')}; {hint}")


def unknown_command(word: str, program: str, commands: Iterable[str], rest: Iterable[str]) -> UsageError:
    """Return the error for a first word that is no subcommand."""
    if word in _OTHER_WORDS:
        instead = " ".join((_OTHER_WORDS[word], *rest))
    elif shutil.which(word) or os.path.isfile(word):  # noqa: PTH113 — a name may be too long
        instead = " ".join(("profile", word, *rest))
    else:
        instead = guess(word, commands)
    hint = f"did you mean `{program} {instead}`?" if instead else f"see `{program} --help`"
    return UsageError(f"there is no command {word!r}; {hint}")
