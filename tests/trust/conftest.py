"""Folders that several users share."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Path]:
    """Make a world-writable folder below folders that everybody may enter."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    for parent in folder.parents:
        mode = parent.stat().st_mode
        if parent.stat().st_uid == os.geteuid() and not mode & stat.S_IXOTH:
            parent.chmod(mode | stat.S_IXGRP | stat.S_IXOTH)
    yield folder
    (folder / "stop").touch()
