"""Load, check and save the file of a session, and make its JSON Schema."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
from math import inf
from typing import Any, BinaryIO

import msgspec

from nncftools import intake
from nncftools.errors import SessionFileError
from nncftools.files import write_file
from nncftools.intake import unknown_text
from nncftools.journal import reading
from nncftools.session import recording
from nncftools.session.model import FIELDS, FORMAT, VERSION, SessionData, check_snapshots
from nncftools.session.samples import Samples

STILL_RUNS = "unfinished: the recording still runs"
_Document = dict[str, msgspec.Raw]


def load(path: str | os.PathLike[str]) -> SessionData:
    """Load a session or a journal; either may be gzipped.

    Raises SessionFileError with the file, the location and the expected value.
    """
    path = pathlib.Path(path)
    with intake.open_file(path, "a file with a session of `nncf-tools monitor` expected") as file:
        intake.check_size(file, path)
        return load_from(file, path)


def load_from(file: BinaryIO, path: pathlib.Path) -> SessionData:
    """Load a session or a journal from an open file. Raises SessionFileError; the message contains ``path``."""
    data = intake.content(file, path)
    origin = str(path)
    if data.startswith(intake.UTF_16_MARKS):
        raise SessionFileError(f"{origin}: UTF-16, UTF-8 expected")
    if not data or data.isspace():
        raise SessionFileError(f"{origin}: the file is empty; a session of `nncf-tools monitor` was expected")
    first = data[: data.find(b"\n") + 1] or data
    if f'"{reading.FORMAT}"'.encode() not in first[:200]:
        return _session_from(data, origin)
    snapshots = b""
    with contextlib.suppress(OSError), reading.reader(reading.snapshots_beside(path)) as log:
        snapshots = log.read(intake.LIMITS.size)
    session = recording.session_from(io.BytesIO(data), origin, snapshots=snapshots)
    if not session.finished:
        warning = "unfinished: the recorder was killed, or the machine stopped; these are the figures up to then"
        if reading.is_recording(path):
            warning = f"{STILL_RUNS}; these are the figures up to now"
        session.warnings.append(warning)
    return session


def save(session: SessionData, path: str | os.PathLike[str]) -> pathlib.Path:
    """Save a session and return the path. If the name ends in ``.gz``, the file is gzipped.

    The file appears only when complete. Unknown keys of the loaded file are saved again. Raises OSError.
    """
    path = pathlib.Path(path)
    write_file(path, encode(session))
    return path


def encode(session: SessionData) -> bytes:
    """Return a session as JSON, including unknown keys of the loaded file."""
    loaded = msgspec.json.decode(session.unsaved.loaded, type=_Document)
    document = {}
    for field in FIELDS:
        value = getattr(session, field.name)
        raw = loaded.pop(field.name, None)
        if isinstance(value, Samples):
            document[field.name] = msgspec.json.encode(value.raw())
        elif raw is not None and intake.decode(raw, field.type, "", []) == value:
            document[field.name] = bytes(raw)
        else:
            document[field.name] = msgspec.json.encode(value)
    document.update(loaded)
    members = []
    for key, content in document.items():
        members.append(b"%b: %b" % (msgspec.json.encode(key), content))
    return b"{\n%b\n}\n" % b",\n".join(members)


def _session_from(data: bytes, origin: str) -> SessionData:
    document = _split(data, origin)
    warnings: list[str] = []
    try:
        session = _decode_fields(document, origin, warnings)
        _check(session)
        str(data, "utf-8")  # msgspec does not check the keys of parts that were skipped
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SessionFileError(f"{origin}: {error}") from error
    session.unsaved.loaded = data
    return session


def _split(data: bytes, origin: str) -> _Document:
    """Return the top-level values of a document, still as JSON, by key.

    Raises SessionFileError if the document is not a session.
    """
    try:
        document = msgspec.json.decode(data, type=_Document)
        kind = msgspec.json.decode(document.get("format", b"null"))
        version = msgspec.json.decode(document.get("version", b"null"))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise SessionFileError(f"{origin}: not a session: {error}") from error
    if kind != FORMAT:
        raise SessionFileError(f'{origin}: not a session of nncf-tools: `"format": "{FORMAT}"` expected')
    if not isinstance(version, int):
        raise SessionFileError(f"{origin}: at `$.version`: a whole number expected")
    if version > VERSION:
        expected = f"this nncf-tools reads up to {VERSION}: upgrade nncf-tools"
        raise SessionFileError(f"{origin}: session format version {version}, {expected}")
    return document


def _decode_fields(document: _Document, origin: str, warnings: list[str]) -> SessionData:
    fields: dict[str, Any] = {}
    for field in FIELDS:
        raw = document.get(field.name)
        if raw is None:
            if field.required:
                raise SessionFileError(f"{origin}: at `$`: the key {field.name!r} is missing")
        elif field.type is Samples:
            columns = intake.decode(raw, _Document, "$.samples", [])
            from_zero = bytes(document.get("from_zero", b"")) == b"true"
            fields[field.name] = Samples(columns, origin, may_fall_below_zero=from_zero, warnings=warnings)
        else:
            fields[field.name] = intake.decode(raw, field.type, f"$.{field.name}", warnings)
    warnings[:] = dict.fromkeys([*fields.get("warnings", ()), *warnings])
    fields["warnings"] = warnings
    return SessionData(**fields)


def mend(session: SessionData) -> None:
    """Replace out-of-range numbers by None, and add a warning; another tool's log may have such numbers.

    Raises WrongValueError for other invalid values, and SessionFileError for invalid samples.
    """
    session.samples.check(session.warnings)
    for field in FIELDS:
        if field.type is not Samples:
            raw = msgspec.json.encode(getattr(session, field.name))
            setattr(session, field.name, intake.decode(raw, field.type, f"$.{field.name}", session.warnings))
    _check(session)


def _check(session: SessionData) -> None:
    """Raise WrongValueError if columns have different lengths or if times go back.

    If an operation ends before its start, the end becomes unknown. Negative sizes in the curve of a rank become
    unknown, too; only differences may be negative.
    """
    for number, mark in enumerate(session.marks):
        if mark.end_s is not None and mark.end_s < mark.start_s:
            mark.end_s = None
            session.warnings.append(unknown_text(1, f"$.marks[{number}].end_s"))
    for process in session.processes:
        if process.series is not None:
            intake.check_columns(f"$.processes[{process.id}].series", process.series.time_s, process.series.rss)
    for rank in session.ranks:
        intake.check_columns(f"$.ranks.{rank.name}", rank.time_s, rank.rss)
        wrong = 0
        if not session.from_zero:
            wrong = intake.set_unknown(rank.rss, [""], low=0, high=inf)
        if wrong:
            session.warnings.append(unknown_text(wrong, f"$.ranks.{rank.name}.rss"))
    if session.snapshots is not None:
        check_snapshots(session.snapshots)


_VALUES = {
    "type": "array",
    "items": {"anyOf": [{"type": "number"}, {"type": "null"}]},
}
_SAMPLES: dict[str, Any] = {
    "type": "object",
    "description": "Columns of equal length: time_s (seconds since the start, rising) and one column per metric.",
    "properties": {"time_s": {"type": "array", "items": {"type": "number", "minimum": 0}}},
    "required": ["time_s"],
    "additionalProperties": _VALUES,
}


def schema() -> dict[str, Any]:
    """Return the JSON Schema (version 2020-12) of a session file."""
    fields = []
    for field in FIELDS:
        default = field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        fields.append((field.name, field.type, default))
    saved = msgspec.defstruct("Session", fields, namespace={"__doc__": SessionData.__doc__}, kw_only=True)
    described = msgspec.json.schema(saved, schema_hook=lambda _: _SAMPLES)
    session = described["$defs"]["Session"]
    session["properties"]["format"]["const"] = FORMAT
    session["properties"]["version"]["const"] = VERSION
    session["required"] = ["format", "version", *session["required"]]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A recorded run of nncf-tools",
        **described,
    }
