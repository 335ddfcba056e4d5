"""The names of files that hold marks; separate from their reader, because a recording needs only the names."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pathlib

SIDECARS = (".marks.json", ".marks.jsonl", ".marks.csv")
"""Endings of the sidecars that are found automatically next to a session or journal."""
MARKS_ENDING = SIDECARS[1]
"""The ending of the marks log of a running recording."""


def find_sidecar(path: pathlib.Path) -> pathlib.Path | None:
    """Return the sidecar next to a session ``NAME.json`` or a journal, such as ``NAME.marks.json``, or None."""
    name = path.name.removesuffix(".gz").removesuffix(".json").removesuffix(".journal.jsonl")
    return next((found for ending in SIDECARS if (found := path.with_name(name + ending)).is_file()), None)
