"""Programs that are measured: small, without site packages, and each ends by itself after a known time."""

from __future__ import annotations

import pathlib
import sys

_FOLDER = pathlib.Path(__file__).parent


def program(name: str, *arguments: object) -> list[str]:
    """Return the command that runs the workload ``name``."""
    return [sys.executable, "-S", "-E", str(_FOLDER / f"{name}.py"), *map(str, arguments)]
