"""Short texts of lines of a marks log, and of the operations that they make."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from nncftools.reading_marks.entries import Entry

if TYPE_CHECKING:
    from nncftools.session.model import Mark

PID = 100
"""The first process of a made-up session."""
WORDS: dict[str, dict[str, object]] = {
    "auto": {"source": "auto"},
    "shell": {"source": "shell", "pid": None, "tid": None},
    "output": {"source": "output", "pid": None, "tid": None},
    "step": {"step": True},
    "later": {"later": True},
    "in0": {"within": 0},
    "one": {"within": 0, "profiler": 1},
    "two": {"within": 0, "profiler": 2},
    "long": {"pid": 103, "tid": 103},
    "other": {"pid": 300, "tid": 300},
}


def fields_of(text: str) -> dict[str, Any]:
    """Return the fields of a line: ``1 +name.op`` is a begin at 1 s, ``2 -op`` an end, and ``1 *name`` a moment."""
    start_s, event, *words = text.split()
    fields: dict[str, Any] = {"start_s": float(start_s), "pid": PID, "tid": PID, "source": "api"}
    for word in words:
        key, _, value = word.partition("=")
        fields |= {key: json.loads(value)} if value else WORDS[key]
    name, _, op = event[1:].partition(".")
    if event[0] == "+":
        fields |= {"event": "begin", "name": name, "op": int(op)}
    elif event[0] == "-":
        fields |= {"event": "end", "op": int(name)}
    elif event[0] == "*":
        fields["name"] = name
    else:
        fields |= {"event": event, "lost": 3 if event == "lost" else None}
    return fields


def entry(text: str) -> Entry:
    """Return a line of a log as it is read."""
    return Entry(**fields_of(text))


def entries(text: str) -> list[Entry]:
    """Return the lines of a text."""
    return [entry(line) for line in text.split(", ")]


def told(mark: Mark, end_s: float | None) -> str:
    """Return name, count, times, depth and error of an operation as a text."""
    count = "" if mark.total_s is None else f" x{mark.count}={mark.total_s:g}/{mark.longest_s:g}"
    end = "" if end_s is None else f"{end_s:g}"
    return f"{mark.name}{count} {mark.start_s:g}-{end} {mark.depth}{' ' * bool(mark.error)}{mark.error or ''}"


def spans(marks: list[Mark]) -> str:
    """Return operations as a text."""
    return ", ".join(told(mark, mark.end_s) for mark in marks)
