"""Write the completion scripts of this folder, and docs/commands.md (``python completions/generate.py``).

The scripts are Typer's: at each Tab they ask nncf-tools itself, so that what it offers is what is installed.
"""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
from unittest import mock

from typer._completion_shared import get_completion_script  # there is no public way without a running shell

PROGRAM = "nncf-tools"
HERE = pathlib.Path(__file__).parent
SHELLS = {"bash": "nncf-tools.bash", "zsh": "_nncf-tools", "fish": "nncf-tools.fish", "powershell": "nncf-tools.ps1"}
"""File names as the shells look for them."""
COMMANDS = HERE.parent / "docs" / "commands.md"
_WIDTH = "80"


def script(shell: str) -> str:
    """Return the completion script of a shell."""
    text = get_completion_script(prog_name=PROGRAM, complete_var="_NNCF_TOOLS_COMPLETE", shell=shell)
    return text.strip() + "\n"


def commands_page() -> str:
    """Return the help of every command, as it is printed at 80 columns."""
    from nncftools.cli.app import COMMANDS

    parts = ["# Commands\n\nThe help of every command (`python completions/generate.py` writes this page).\n"]
    parts += [f"## {PROGRAM}\n\n```\n{_help()}```\n"]
    parts += [f"## {PROGRAM} {name}\n\n```\n{_help(name)}```\n" for name in COMMANDS]
    return "\n".join(parts)


def _help(*words: str) -> str:
    from nncftools.cli.app import app

    with contextlib.redirect_stdout(io.StringIO()) as printed, mock.patch.dict(os.environ, COLUMNS=_WIDTH):
        app([*words, "--help"], prog_name=PROGRAM, standalone_mode=False)
    return printed.getvalue()


if __name__ == "__main__":
    for shell, name in SHELLS.items():
        (HERE / name).write_text(script(shell), encoding="utf-8")
    COMMANDS.write_text(commands_page(), encoding="utf-8")
