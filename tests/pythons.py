"""The Pythons of this machine."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.surroundings import HANGING_S


def python(version: str) -> str:
    """Return a Python of this version; skip the test without one."""
    kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for found in [*map(str, kept), shutil.which(f"python{version}")]:
        if (
            found
            and subprocess.run([found, "-c", ""], capture_output=True, timeout=HANGING_S, check=False).returncode == 0
        ):
            return found
    pytest.skip(f"no Python {version} here")
