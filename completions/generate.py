"""Write the completion scripts of this folder (``python completions/generate.py``).

The scripts are Typer's: at each Tab they ask nncf-tools itself, so that what it offers is what is installed.
"""

from __future__ import annotations

import pathlib

from typer._completion_shared import get_completion_script  # there is no public way without a running shell

PROGRAM = "nncf-tools"
HERE = pathlib.Path(__file__).parent
SHELLS = {"bash": "nncf-tools.bash", "zsh": "_nncf-tools", "fish": "nncf-tools.fish", "powershell": "nncf-tools.ps1"}
"""File names as the shells look for them."""


def script(shell: str) -> str:
    """Return the completion script of a shell."""
    text = get_completion_script(prog_name=PROGRAM, complete_var="_NNCF_TOOLS_COMPLETE", shell=shell)
    return text.strip() + "\n"


if __name__ == "__main__":
    for shell, name in SHELLS.items():
        (HERE / name).write_text(script(shell), encoding="utf-8")
