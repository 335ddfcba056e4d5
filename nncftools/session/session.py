"""The session: one recorded run as an object, and its file: loaded, checked and saved."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from nncftools import intake
from nncftools.errors import SessionFileError
from nncftools.files import write_file
from nncftools.intake import WrongValueError, unknown_text
from nncftools.journal import reading
from nncftools.session import recording
from nncftools.session.model import FIELDS, FORMAT, VERSION, SessionData, check_snapshots
from nncftools.session.samples import Samples

if TYPE_CHECKING:
    pass


STILL_RUNS = "unfinished: the recording still runs"


def load(path: str | os.PathLike[str]) -> SessionData:
    """Read a session or a journal, either also gzipped.

    Raises SessionFileError, which names the file, the place and what was expected.
    """
    path = pathlib.Path(path)
    with intake.open_file(path, ", with a session of `nncf-tools monitor`") as file:
        intake.check_size(file, path)
        return load_from(file, path)


def load_from(file: BinaryIO, path: pathlib.Path) -> SessionData:
    """Read a session or a journal from an open file; ``path`` names it. Raises SessionFileError."""
    data = intake.content(file, path)
    origin = str(path)
    if data.startswith(intake.UTF_16_MARKS):
        raise SessionFileError(f"{origin}: UTF-16, UTF-8 expected")
    if not data or data.isspace():
        raise SessionFileError(f"{origin}: the file is empty; a session of `nncf-tools monitor` was expected")
    first = data[: data.find(b"\n") + 1] or data
    if f'"{reading.FORMAT}"'.encode() in first[:200]:
        snapshots = b""
        with contextlib.suppress(OSError), reading.reader(reading.snapshots_beside(path)) as log:
            snapshots = log.read(intake.LIMITS.size)
        session = recording.session_from(io.BytesIO(data), origin, snapshots=snapshots)
        if not session.finished:
            killed = "unfinished: the recorder was killed, or the machine stopped; these are the figures up to then"
            runs = reading.is_recording(path)
            session.warnings.append(f"{STILL_RUNS}; these are the figures up to now" if runs else killed)
        return session
    return _session_from(data, origin)


def save(session: SessionData, path: str | os.PathLike[str]) -> pathlib.Path:
    """Write the session, gzipped when the name ends in ``.gz``, and return the path.

    The file appears whole or not at all. Keys of the loaded file that this version does not know are kept.
    Raises OSError.
    """
    path = pathlib.Path(path)
    data = encoded(session)
    write_file(path, data)
    return path


def encoded(session: SessionData) -> bytes:
    """Return the JSON of a session; keys of the loaded file that this version does not know are kept."""
    loaded = msgspec.json.decode(session.unsaved.loaded, type=dict[str, msgspec.Raw])
    document: dict[str, bytes] = {}
    for field in FIELDS:
        value = getattr(session, field.name)
        if isinstance(value, Samples):
            document[field.name] = msgspec.json.encode(value.raw())
        elif field.name in loaded and intake.decode(loaded[field.name], field.type, "", []) == value:
            document[field.name] = bytes(loaded[field.name])
        else:
            document[field.name] = msgspec.json.encode(value)
    document.update({key: bytes(raw) for key, raw in loaded.items() if key not in document})
    pieces: list[bytes] = []
    for key, value in document.items():
        pieces += [b",\n" if pieces else b"{\n", msgspec.json.encode(key), b": ", value]
    return b"".join([*pieces, b"\n}\n"])


def _session_from(data: bytes, origin: str) -> SessionData:
    try:
        document = _split(data)
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
    fields: dict[str, Any] = {}
    warnings: list[str] = []
    for field in FIELDS:
        if (raw := document.get(field.name)) is None:
            if field.required:
                raise SessionFileError(f"{origin}: at `$`: the key {field.name!r} is missing")
            continue
        if field.type is Samples:
            columns = raw if isinstance(raw, dict) else _decode(raw, dict[str, msgspec.Raw], "$.samples", origin, [])
            from_zero = bytes(document.get("from_zero", b"")) == b"true"
            fields[field.name] = Samples(columns, origin, may_fall_below_zero=from_zero, warnings=warnings)
        else:
            fields[field.name] = _decode(raw, field.type, f"$.{field.name}", origin, warnings)
    warnings[:] = dict.fromkeys([*fields.get("warnings", ()), *warnings])
    session = SessionData(**{**fields, "warnings": warnings})
    try:
        _check(session)
    except WrongValueError as error:
        raise SessionFileError(f"{origin}: {error}") from error
    session.unsaved.loaded = data
    return session


def mend(session: SessionData) -> None:
    """Set numbers of a foreign log that are out of range to None, with a warning. Raises WrongValueError.

    Samples raise SessionFileError.
    """
    session.samples.check(session.warnings)
    for field in FIELDS:
        if field.type is not Samples:
            raw = msgspec.json.encode(getattr(session, field.name))
            setattr(session, field.name, intake.decode(raw, field.type, f"$.{field.name}", session.warnings))
    _check(session)


def _check(session: SessionData) -> None:
    """Raise WrongValueError for columns of different lengths, and for times that go back.

    The end of an operation before its start is unknown.
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
    if session.snapshots is not None:
        check_snapshots(session.snapshots)


_Parts = msgspec.defstruct(
    "_Parts",
    [(field.name, dict[str, msgspec.Raw] if field.type is Samples else msgspec.Raw, None) for field in FIELDS],
)


def _split(data: bytes) -> dict[str, Any]:
    """Return the document's parts unparsed; ``samples`` as a dictionary, if it is one, since a second pass is slow."""
    try:
        if not data.isascii():
            str(data, "utf-8")  # msgspec does not check keys that it skips
        parts = msgspec.json.decode(data, type=_Parts)
    except (msgspec.ValidationError, UnicodeDecodeError):
        return msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    return {name: part for name, part in msgspec.structs.asdict(parts).items() if part is not None}


def _decode(raw: msgspec.Raw, kind: Any, path: str, origin: str, warnings: list[str]) -> Any:  # noqa: ANN401 — of a field
    try:
        return intake.decode(raw, kind, path, warnings)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SessionFileError(f"{origin}: {error}") from error


def schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a session file."""

    def of_samples(kind: type) -> dict[str, Any]:
        assert kind is Samples
        values = {"type": "array", "items": {"anyOf": [{"type": "number"}, {"type": "null"}]}}
        return {
            "type": "object",
            "description": "Columns of equal length: time_s (seconds since the start, rising) and one per metric.",
            "properties": {"time_s": {"type": "array", "items": {"type": "number", "minimum": 0}}},
            "required": ["time_s"],
            "additionalProperties": values,
        }

    fields: list[Any] = []
    for field in FIELDS:
        is_made = field.default_factory is not msgspec.NODEFAULT
        fields.append((field.name, field.type, field.default_factory() if is_made else field.default))
    saved = msgspec.defstruct("Session", fields, namespace={"__doc__": SessionData.__doc__}, kw_only=True)
    described = msgspec.json.schema(saved, schema_hook=of_samples)
    session = described["$defs"]["Session"]
    session["properties"]["format"]["const"] = FORMAT
    session["properties"]["version"]["const"] = VERSION
    session["required"] = ["format", "version", *session["required"]]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A recorded run of nncf-tools",
        **described,
    }
