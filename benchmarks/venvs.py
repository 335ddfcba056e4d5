"""A virtual environment per tool."""

from __future__ import annotations

import subprocess
import sys
import venv
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Sequence

_VERSIONS = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"


def prepared(folder: pathlib.Path, packages: Sequence[str]) -> pathlib.Path:
    """Return the interpreter of an environment in ``folder`` with ``packages``; make and fill it when it is not there.

    Raises CalledProcessError.
    """
    python = folder / "bin" / "python"
    if not python.exists():
        print(f"making {folder}", file=sys.stderr)
        venv.create(folder, symlinks=True, with_pip=True)
    if not versions(python, packages):
        print(f"installing {', '.join(packages)}", file=sys.stderr)
        command = (str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)
        subprocess.run(command, stdout=sys.stderr, check=True)
    return python


def versions(python: pathlib.Path, packages: Sequence[str]) -> list[str]:
    """Return the installed versions of ``packages``; nothing when one is missing."""
    command = (str(python), "-c", _VERSIONS, *packages)
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
