"""The names of the files that hold marks; apart from their reader, because a recording needs no more to begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pathlib

SIDECARS = (".marks.json", ".marks.jsonl", ".marks.csv")
"""Endings of the files that are found beside a session or journal without asking."""
MARKS_ENDING = SIDECARS[1]
"""That of the log of a recording that runs."""


def beside(path: pathlib.Path) -> pathlib.Path | None:
    """Return the sidecar that lies beside a session ``NAME.json`` or a journal, ``NAME.marks.json``, or None."""
    name = path.name.removesuffix(".gz").removesuffix(".json").removesuffix(".journal.jsonl")
    return next((found for ending in SIDECARS if (found := path.with_name(name + ending)).is_file()), None)
