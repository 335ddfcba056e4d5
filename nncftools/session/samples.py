"""The columns of a session: seconds and one array of figures per metric; and how long ones are thinned."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, compress, count, pairwise
from math import inf, isnan, nan
from operator import le
from typing import NamedTuple

import msgspec

from nncftools.errors import SessionFileError
from nncftools.intake import LARGEST, LATEST_S, WrongValueError, check_rising, unknown_text
from nncftools.journal.writing import kept_of_bucket
from nncftools.metrics import in_order, is_memory, unit_of

TIME = "time_s"
_MANY = 1_000_000
"""From about this length on, numpy is faster, including its import (measured: both take 90 ms)."""
_CHUNK = 4096
_PIECE = 1 << 15
"""Bytes of JSON that are parsed at once."""
_FLOATS = msgspec.json.Decoder(list[float])
_FLOATS_OR_NULLS = msgspec.json.Decoder(list[float | None])


class Figures(NamedTuple):
    """A summary of the known values of a column."""

    known: int = 0
    """How many there are."""
    lowest: float = inf
    highest: float = -inf
    average: float | None = None
    """Their mean; None when all values are unknown."""


class Samples(Mapping[str, "array[float]"]):
    """Columns by metric name: ``array('d')`` of equal length, NaN for unknown.

    ``time_s`` holds the seconds since the session's start, rising. Columns of a loaded session are parsed when they are
    first asked for. An invalid column raises ``SessionFileError``, which names the column and the place. A value out of
    range is unknown, and a warning counts it.
    """

    def __init__(
        self,
        columns: Mapping[str, array[float] | msgspec.Raw],
        origin: str = "session",
        *,
        may_fall_below_zero: bool = False,
        warnings: list[str] | None = None,
    ) -> None:
        """Hold ``columns``; ``origin`` names the file in messages; ``warnings`` are those of the session."""
        self._warnings = [] if warnings is None else warnings
        self._columns = dict(columns)
        self._origin = origin
        self._lowest_memory = -LARGEST if may_fall_below_zero else 0.0
        self._figures: dict[str, Figures] = {}
        self._length: int | None = None
        if TIME not in self._columns:
            raise self._wrong("", f"the column {TIME!r} is missing")

    def __getitem__(self, name: str) -> array[float]:
        raw = self._columns[name]
        if not isinstance(raw, msgspec.Raw):
            return raw
        try:
            column = _parsed(raw)
        except msgspec.DecodeError as error:
            raise self._wrong(f".{name}", str(error)) from error
        if name != TIME and len(column) != len(self):
            raise self._wrong(f".{name}", f"{len(self)} values expected, one for each of {TIME!r}, found {len(column)}")
        self._check(name, column)
        self._columns[name] = column
        return column

    def check(self, warnings: list[str]) -> None:
        """Check the columns that were not loaded from a session; ``warnings`` gets those of this object from now on.

        Raises SessionFileError for the first column that cannot be.
        """
        self._warnings = warnings
        for name, column in self._columns.items():
            if not isinstance(column, msgspec.Raw):
                self._check(name, column)

    def figures(self, name: str) -> Figures:
        """Return a summary of a column."""
        column = self[name]
        return self._figures.get(name) or figures(column)

    def _check(self, name: str, column: array[float]) -> None:
        summary = figures(column)
        lowest = self._lowest_memory if is_memory(name) else 0.0
        if name == TIME:
            if summary.lowest < 0 or summary.highest > LATEST_S:
                raise self._wrong(f".{TIME}", "seconds from 0 to 10^10 expected")
            self._check_time(column, summary.known)
        elif unit_of(name) is not None and (summary.lowest < lowest or summary.highest > LARGEST):
            wrong = [index for index, value in enumerate(column) if value < lowest or value > LARGEST]
            for index in wrong:
                column[index] = nan
            self._warnings.append(unknown_text(len(wrong), f"$.samples.{name}[{wrong[0]}]"))
            summary = figures(column)
        self._figures[name] = summary

    def _check_time(self, column: array[float], known: int) -> None:
        if known != len(column):
            raise self._wrong(f".{TIME}", "a number for every sample expected, found null")
        if len(column) >= _MANY:
            import numpy as np

            values = np.asarray(column)
            if (values[:-1] <= values[1:]).all():
                return
        try:
            check_rising(column, f"$.samples.{TIME}")
        except WrongValueError as error:
            raise SessionFileError(f"{self._origin}: {error}") from error

    def _wrong(self, where: str, what: str) -> SessionFileError:
        return SessionFileError(f"{self._origin}: at `$.samples{where}`: {what}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        """Return the number of samples."""
        time_s = self._columns[TIME]
        if not isinstance(time_s, msgspec.Raw):
            return len(time_s)
        if self._length is None:
            self._length = _length(time_s)
        return self._length

    @property
    def time_s(self) -> array[float]:
        """Seconds since the session's start."""
        return self[TIME]

    @property
    def metrics(self) -> list[str]:
        """The names of the metrics that were recorded, those known to this version first and in its order."""
        return in_order(name for name in self._columns if name != TIME)

    def joined(self, columns: Mapping[str, array[float]]) -> Samples:
        """Return these samples with further columns."""
        return Samples(
            {**self._columns, **columns},
            self._origin,
            may_fall_below_zero=self._lowest_memory < 0,
            warnings=self._warnings,
        )

    def raw(self) -> dict[str, msgspec.Raw]:
        """Return the columns as JSON; those that were never parsed are unchanged."""
        return {
            name: column if isinstance(column, msgspec.Raw) else msgspec.Raw(_json(name, column))
            for name, column in self._columns.items()
        }


def drift(size: float) -> float:
    """Return by how much two readings of one level differ: 0.1 %, and at least 256 KiB."""
    return max(size / 1000, 256 * 1024)


def noise(size: float) -> float:
    """Return the difference of memory that does not matter: 1 %, and at least 1 MiB.

    The peak belongs to the operation in which memory first came this close to it: an interpreter that ends, allocators
    and caches still move a little. A figure with closer bounds is given without them.
    """
    return max(size * 0.01, 1 << 20)


def first_at_least(values: Sequence[float], level: float) -> int:
    """Return the place of the first value that is at least ``level``; there is one. NaN is unknown."""
    for begin in range(0, len(values), _CHUNK):
        chunk = values[begin : begin + _CHUNK]
        if len(chunk) < _CHUNK or max(chunk) >= level or isnan(sum(chunk)):
            place = next(compress(count(begin), map(float(level).__le__, chunk)), None)
            if place is not None:
                return place
    raise ValueError(f"no value is at least {level}")


def figures(column: array[float]) -> Figures:
    """Return a summary of a column."""
    if len(column) >= _MANY:
        import numpy as np

        every = np.asarray(column)
        values = every[~np.isnan(every)] if np.isnan(every.sum()) else every
        if not len(values):
            return Figures()
        return Figures(len(values), float(values.min()), float(values.max()), float(values.mean()))
    of = known(column)
    return Figures(len(of), min(of), max(of), sum(of) / len(of)) if of else Figures()


def are_whole(name: str, values: array[float]) -> bool:
    """Return whether a column holds whole numbers: bytes, or counts."""
    return unit_of(name) == "B" or (unit_of(name) == "" and all(map(float.is_integer, known(values))))


def known(values: array[float]) -> array[float]:
    """Return the values that are known."""
    if not isnan(sum(values)):
        return values
    return array("d", (value for value in values if not isnan(value)))


def _json(name: str, column: array[float]) -> bytes:
    if unit_of(name) == "B":
        try:
            return msgspec.json.encode(list(map(int, column)))
        except ValueError:  # NaN
            return msgspec.json.encode([None if isnan(value) else int(value) for value in column])
    return msgspec.json.encode(column.tolist())  # msgspec writes NaN as null


def _length(raw: msgspec.Raw) -> int:
    """Return how many values a list of numbers has, without parsing them."""
    text = bytes(raw)
    commas = text.count(b",")
    return commas + 1 if commas or text.strip(b"[] \t\r\n") else 0


def _parsed(raw: msgspec.Raw) -> array[float]:
    """Return a JSON list of numbers and nulls as a column. Raises DecodeError, which names the place."""
    column = array("d")
    try:
        for piece in _pieces(raw):
            try:
                column.fromlist(_FLOATS.decode(piece))
            except msgspec.ValidationError:
                column.extend(nan if value is None else value for value in _FLOATS_OR_NULLS.decode(piece))
    except msgspec.DecodeError:
        msgspec.json.decode(raw, type=list[float | None])  # the same error, with its place in the whole list
        raise
    return column


def _pieces(raw: msgspec.Raw) -> Iterator[bytes]:
    """Yield a list as short lists: parsed at once, a million numbers are Python objects of 32 MB."""
    text = memoryview(raw)
    begin = 1
    while len(text) - begin > _PIECE:
        piece = bytes(text[begin : begin + _PIECE])
        length = piece.rfind(b",")
        if length < 0:
            break
        yield b"[%b]" % piece[:length]
        begin += length + 1
    yield b"%b%b" % (bytes(text[:1]), bytes(text[begin:]))


def kept_rows(gauges: Sequence[array[float]], rows: int, limit: int) -> list[int]:
    """Return the rows that remain when neighbours merge into buckets of equal length: at most about ``limit``.

    ``nncftools.journal.writing`` says which rows a bucket keeps.
    """
    buckets = max(1, limit // (2 * len(gauges) + 1))
    edges = [bucket * rows // buckets for bucket in range(buckets + 1)]
    return [row for begin, end in pairwise(edges) if end > begin for row in kept_of_bucket(gauges, begin, end)]


def rising(times: Sequence[float]) -> Sequence[int]:
    """Return the rows to keep so that times rise.

    Either the rows whose time goes back are left out, or the rows that are ahead of later ones, whichever are fewer.
    """
    if all(map(le, times, times[1:])):
        return range(len(times))
    rows = list(range(len(times)))
    highest, lowest = list(accumulate(times, max)), list(accumulate(reversed(times), min))[::-1]
    not_back = [row for row in rows if times[row] >= highest[row]]
    not_ahead = [row for row in rows if times[row] <= lowest[row]]
    return max(not_back, not_ahead, key=len)


def merge_warning(taken: int, left: int) -> str:
    """Return the warning that neighbours were merged."""
    return (
        f"{taken:,} samples were taken and neighbours merged into {left:,}, which keep the smallest and the largest "
        "values: averages are those of the samples that were kept"
    )


def usual_distance(time_s: array[float]) -> float | None:
    """Return the distance of two samples that only one in a hundred exceeds, in seconds."""
    distances = sorted(after - before for before, after in pairwise(time_s))
    return distances[len(distances) * 99 // 100] if distances else None
