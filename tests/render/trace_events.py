"""The rules of the trace event format, as its document and the importers of both viewers have them."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

Event = dict[str, Any]

REQUIRED = {
    "X": {"name", "cat", "ts", "dur", "pid", "tid", "args"},
    "C": {"name", "ts", "pid", "args"},
    "i": {"name", "ts", "pid", "tid", "s"},
    "M": {"name", "pid", "tid", "args"},
}
METADATA = {
    "process_name": ("name", str),
    "process_labels": ("labels", str),
    "process_sort_index": ("sort_index", int),
    "thread_name": ("name", str),
    "thread_sort_index": ("sort_index", int),
}
LARGEST_ID = 2**32


def checked(data: bytes) -> list[Event]:
    """Return the events of a trace that keeps all rules; an assertion names the rule and the event otherwise."""
    document = json.loads(data.decode("utf-8"), parse_constant=lambda word: _fail(f"no JSON: {word}"))
    assert {"traceEvents", "displayTimeUnit", "otherData"} == set(document)
    assert document["displayTimeUnit"] in {"ms", "ns"}
    events: list[Event] = document["traceEvents"]
    for event in events:
        _check(event)
    for track in {(event["pid"], event["name"], *event["args"]) for event in events if event["ph"] == "C"}:
        _check_rising([e for e in events if e["ph"] == "C" and (e["pid"], e["name"], *e["args"]) == track])
    tracks = {(event["pid"], event["tid"]) for event in events if event["ph"] == "X"}
    for pid, tid in tracks:
        _check_nested([event for event in events if event["ph"] == "X" and (event["pid"], event["tid"]) == (pid, tid)])
    owners = {(event["tid"], event["pid"]) for event in events if "tid" in event}
    assert len(owners) == len({tid for tid, _ in owners}), "a track belongs to one process"
    named = {event["pid"] for event in events if event["name"] == "process_name"}
    assert named == {event["pid"] for event in events}, "every process has a name"
    return events


def _check(event: Event) -> None:
    assert event["ph"] in REQUIRED, event
    assert set(event) >= REQUIRED[event["ph"]], event
    assert isinstance(event["name"], str), event
    assert event["name"], event
    for key in {"pid", "tid"} & set(event):
        assert type(event[key]) is int, event
        assert 0 < event[key] < LARGEST_ID, event  # 0 is the idle process
    for key in {"ts", "dur"} & set(event):
        assert type(event[key]) is int, event
        assert event[key] >= 0, event
    if event["ph"] == "C":
        assert event["args"], event
        assert all(type(value) in {int, float} and isfinite(value) for value in event["args"].values()), event
    if event["ph"] == "i":
        assert event["s"] in {"g", "p", "t"}, event
    if event["ph"] == "M":
        key, kind = METADATA[event["name"]]
        assert type(event["args"][key]) is kind, event


def _check_rising(events: list[Event]) -> None:
    moments = [event["ts"] for event in events]
    assert moments == sorted(moments), events[0]


def _check_nested(events: list[Event]) -> None:
    """Slices of one track lie apart or inside of one another: others are dropped, or shown where they were not."""
    open_until: list[int] = []
    for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
        while open_until and open_until[-1] <= event["ts"]:
            open_until.pop()
        assert not open_until or event["ts"] + event["dur"] <= open_until[-1], event
        open_until.append(event["ts"] + event["dur"])


def _fail(words: str) -> None:
    raise AssertionError(words)
