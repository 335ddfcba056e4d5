"""How large the files are that marked calls have saved, at the end of the run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nncftools.session.model import Mark

_MOST_FILES = 10_000
"""In one folder; of a larger one the size stays unknown."""
_WEIGHTS = {".xml": ("{stem}.bin",), ".onnx": ("{stem}.onnx_data", "{stem}.onnx.data")}
"""Where a model's weights are besides the file that was named, by its ending."""


def take_sizes(marks: Iterable[Mark]) -> None:
    """Set the size of what each mark has saved; it stays None where the file is gone."""
    known: dict[str, int | None] = {}
    for mark in marks:
        if mark.saved is not None:
            if mark.saved not in known:
                known[mark.saved] = size_of(Path(mark.saved))
            mark.saved_size = known[mark.saved]


def size_of(path: Path) -> int | None:
    """Return the bytes of a file with the weights beside it, or of all files in a folder; None for unknown."""
    try:
        if path.is_dir():
            return _of_folder(path)
        beside = [path.with_name(name.format(stem=path.stem)) for name in _WEIGHTS.get(path.suffix, ())]
        return sum(file.stat().st_size for file in (path, *(file for file in beside if file.exists())))
    except (OSError, ValueError):
        return None


def _of_folder(path: Path) -> int | None:
    sizes: list[int] = []
    for folder, _, names in os.walk(path):
        if len(sizes) + len(names) > _MOST_FILES:
            return None
        sizes += [Path(folder, name).lstat().st_size for name in names]
    return sum(sizes)
