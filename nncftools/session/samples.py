"""The samples of a session: a column of times, and a column of values per metric. This module also thins samples.

A helper process reads devices at other times than the samples. The memory of torch's allocator is read at marks (the
starts and ends of operations). Such a value is stored in the last sample before the reading; in samples without a
reading, the value is unknown. A mark triggers a sample, so values from before and after the mark are in different
samples.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from math import inf, isnan, nan
from operator import le
from typing import NamedTuple

import msgspec

from nncftools.errors import SessionFileError
from nncftools.intake import LARGEST, LATEST_S, WrongValueError, check_rising, unknown_text
from nncftools.journal.writing import select_extremes
from nncftools.metrics import DEVICE_MEMORY, in_order, is_memory, name_of, unit_of

TIME = "time_s"
_PIECE = 1 << 15
"""Bytes of JSON to parse at once."""
_FLOATS = msgspec.json.Decoder(list[float])
_FLOATS_OR_NULLS = msgspec.json.Decoder(list[float | None])


class Figures(NamedTuple):
    """Statistics of the known values of a column."""

    known: int = 0
    """Number of known values."""
    lowest: float = inf
    highest: float = -inf
    average: float | None = None
    """Mean of the known values; None if all values are unknown."""


class Samples(Mapping[str, "array[float]"]):
    """Columns by metric name: ``array('d')`` of equal length, with NaN for unknown values.

    The column ``time_s`` has the seconds since the session's start, in rising order. Columns of a loaded session are
    parsed on first use. If a column is invalid, ``SessionFileError`` names the column and the location. A value that is
    out of range becomes unknown, and a warning states how many values are out of range.
    """

    def __init__(
        self,
        columns: Mapping[str, array[float] | msgspec.Raw],
        origin: str = "session",
        *,
        may_fall_below_zero: bool = False,
        warnings: list[str] | None = None,
    ) -> None:
        """``columns`` has the values by metric name. ``origin`` is the file's name in messages.

        Warnings are added to the list ``warnings``.
        """
        self._warnings = [] if warnings is None else warnings
        self._columns = dict(columns)
        self._origin = origin
        self._lowest_memory = -LARGEST if may_fall_below_zero else 0.0
        self._figures: dict[str, Figures] = {}
        if TIME not in self._columns:
            raise self._error_at("", f"the column {TIME!r} is missing")

    def __getitem__(self, name: str) -> array[float]:
        raw = self._columns[name]
        if not isinstance(raw, msgspec.Raw):
            return raw
        try:
            column = _parse(raw)
        except msgspec.DecodeError as error:
            raise self._error_at(f".{name}", str(error)) from error
        if name != TIME and len(column) != len(self):
            expected = f"{len(self)} values expected, one for each of {TIME!r}"
            raise self._error_at(f".{name}", f"{expected}, found {len(column)}")
        self._check(name, column)
        self._columns[name] = column
        return column

    def check(self, warnings: list[str]) -> None:
        """Check the parsed columns; from now on, add warnings to ``warnings``.

        Columns that are still JSON (of a loaded session file) are checked on first use. Raises SessionFileError for the
        first invalid column.
        """
        self._warnings = warnings
        for name, column in self._columns.items():
            if not isinstance(column, msgspec.Raw):
                self._check(name, column)

    def figures(self, name: str) -> Figures:
        """Return statistics of a column."""
        column = self[name]
        return self._figures.get(name) or figures(column)

    def _check(self, name: str, column: array[float]) -> None:
        summary = figures(column)
        lowest = self._lowest_memory if is_memory(name) else 0.0
        if name == TIME:
            if summary.lowest < 0 or summary.highest > LATEST_S:
                raise self._error_at(f".{TIME}", "seconds from 0 to 10^10 expected")
            if summary.known != len(column):
                raise self._error_at(f".{TIME}", "a number for every sample expected, found null")
            try:
                check_rising(column, f"$.samples.{TIME}")
            except WrongValueError as error:
                raise SessionFileError(f"{self._origin}: {error}") from error
        elif unit_of(name) is not None and (summary.lowest < lowest or summary.highest > LARGEST):
            wrong = [index for index, value in enumerate(column) if value < lowest or value > LARGEST]
            for index in wrong:
                column[index] = nan
            self._warnings.append(unknown_text(len(wrong), f"$.samples.{name}[{wrong[0]}]"))
            summary = figures(column)
        self._figures[name] = summary

    def _error_at(self, location: str, problem: str) -> SessionFileError:
        return SessionFileError(f"{self._origin}: at `$.samples{location}`: {problem}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.time_s)

    @property
    def time_s(self) -> array[float]:
        """Times of the samples, in seconds since the session's start."""
        return self[TIME]

    @property
    def metrics(self) -> list[str]:
        """Names of the recorded metrics.

        Metrics that this version knows come first, in the order of ``nncftools.metrics``.
        """
        return in_order(name for name in self._columns if name != TIME)

    def joined(self, columns: Mapping[str, array[float]]) -> Samples:
        """Return a copy of these samples with ``columns`` added."""
        return Samples(
            {**self._columns, **columns},
            self._origin,
            may_fall_below_zero=self._lowest_memory < 0,
            warnings=self._warnings,
        )

    def raw(self) -> dict[str, msgspec.Raw]:
        """Return the columns as JSON. A column that was never parsed is returned as loaded."""
        return {name: _encode(name, column) for name, column in self._columns.items()}


def drift(size: float) -> float:
    """Return the largest difference between two readings of unchanged memory: 0.1 % of ``size``, at least 256 KiB."""
    return max(size / 1000, 256 * 1024)


def noise(size: float) -> float:
    """Return the largest difference in memory that does not matter: 1 % of ``size``, at least 1 MiB.

    A peak belongs to the operation in which memory first came this close to the peak. After that operation, allocators,
    caches and the end of the interpreter still change memory a little. If the lower and the upper bound of a peak
    differ by less than this, outputs do not show the bounds.
    """
    return max(size * 0.01, 1 << 20)


def first_at_least(values: Sequence[float], level: float) -> int:
    """Return the index of the first value that is at least ``level``, ignoring NaN.

    Raises ValueError if there is no such value.
    """
    for index, value in enumerate(values):
        if value >= level:
            return index
    raise ValueError(f"no value is at least {level}")


def figures(column: array[float]) -> Figures:
    """Return statistics of a column."""
    numbers = drop_unknown(column)
    if not numbers:
        return Figures()
    average = sum(numbers) / len(numbers)
    return Figures(len(numbers), min(numbers), max(numbers), average)


def are_whole(name: str, values: array[float]) -> bool:
    """Return whether a column has only whole numbers: bytes or counts."""
    unit = unit_of(name)
    return unit == "B" or (unit == "" and all(map(float.is_integer, drop_unknown(values))))


def drop_unknown(values: array[float]) -> array[float]:
    """Return the values without NaN."""
    if not isnan(sum(values)):
        return values
    return array("d", (value for value in values if not isnan(value)))


def columns_of(
    time_s: Sequence[float], readings: Iterable[tuple[float, Mapping[str, float | None]]]
) -> dict[str, array[float]]:
    """Return a column per metric. A reading is a pair of a time and ``{column: value}``.

    If several readings fall into the same sample, the largest value counts for memory, and the last value for other
    metrics.
    """
    columns: dict[str, array[float]] = {}
    for at_s, values in readings:
        row = max(0, bisect_right(time_s, at_s) - 1)
        for name, value in values.items():
            column = columns.setdefault(name, array("d", [nan]) * len(time_s))
            if value is not None and row < len(time_s):
                has_larger = is_memory(name) and column[row] > value
                column[row] = column[row] if has_larger else value
    return columns


def columns_in_use(
    time_s: Sequence[float], readings: Collection[tuple[float, Mapping[str, float | None]]]
) -> tuple[dict[str, array[float]], set[str]]:
    """Return the columns of devices in use, and the names of the ``device_memory`` columns that were always 0.

    A device is in use if the run may have used the device's own memory, or system memory (RAM) for the device. For a
    device in use, the columns about all programs of the machine (memory, load) are also returned.
    """
    columns = columns_of(time_s, readings)
    of_run = {name for name in columns if name_of(name) == DEVICE_MEMORY}
    used = set[str]()
    for _, values in readings:
        used.update(name for name in of_run if values.get(name, 0) != 0)
    devices = {_device_of(name).removesuffix(".system") for name in used}
    for name in list(columns):
        if name not in used and (name in of_run or _device_of(name) not in devices):
            del columns[name]
    return columns, of_run - used


def _device_of(column: str) -> str:
    return column.partition("@")[2]


def _encode(name: str, column: array[float] | msgspec.Raw) -> msgspec.Raw:
    if isinstance(column, msgspec.Raw):
        return column
    values: list[float | None] = list(column)  # msgspec writes NaN as null
    if unit_of(name) == "B":
        values = list(map(_whole_or_none, column))
    return msgspec.Raw(msgspec.json.encode(values))


def _whole_or_none(value: float) -> int | None:
    return None if isnan(value) else int(value)


def nan_for_none(value: float | None) -> float:
    """Return NaN for None; return any other value unchanged."""
    return nan if value is None else value


def _parse(raw: msgspec.Raw) -> array[float]:
    """Parse a JSON list of numbers and nulls into an array. Raises DecodeError with the location."""
    column = array("d")
    try:
        for piece in _split(raw):
            column.extend(_parse_piece(piece))
    except msgspec.DecodeError:
        _FLOATS_OR_NULLS.decode(raw)  # raises the same error, but with the location in the whole list
        raise
    return column


def _parse_piece(piece: bytes) -> Iterable[float]:
    try:
        return _FLOATS.decode(piece)
    except msgspec.ValidationError:
        return map(nan_for_none, _FLOATS_OR_NULLS.decode(piece))


def _split(raw: msgspec.Raw) -> Iterator[bytes]:
    """Yield a JSON list in short parts. Parsed at once, a million numbers would be Python objects of 32 MB."""
    text = memoryview(raw)
    begin = 1
    while len(text) - begin > _PIECE:
        piece = bytes(text[begin : begin + _PIECE])
        length = piece.rfind(b",")
        if length < 0:
            break
        yield b"[%b]" % piece[:length]
        begin += length + 1
    first = bytes(text[:1])
    rest = bytes(text[begin:])
    yield first + rest


def select_rows(gauges: Sequence[array[float]], rows: int, limit: int) -> list[int]:
    """Return the indexes of about ``limit`` rows to keep from ``rows`` rows.

    Neighbouring rows form buckets of equal length; ``nncftools.journal.writing.select_extremes`` selects the rows of a
    bucket.
    """
    buckets = max(1, limit // (2 * len(gauges) + 1))
    edges = [bucket * rows // buckets for bucket in range(buckets + 1)]
    remaining = []
    for begin, end in pairwise(edges):
        if end > begin:
            remaining += select_extremes(gauges, begin, end)
    return remaining


def find_rising_rows(times: Sequence[float]) -> Sequence[int]:
    """Return the indexes of the rows to keep so that times rise.

    If times are out of order, there are two ways: drop each row that follows a later time, or drop each row that
    precedes an earlier time. The way that keeps more rows is taken.
    """
    if all(map(le, times, times[1:])):
        return range(len(times))
    highest = list(accumulate(times, max))
    lowest = list(accumulate(reversed(times), min))[::-1]
    not_back = [row for row, time_s in enumerate(times) if time_s >= highest[row]]
    not_ahead = [row for row, time_s in enumerate(times) if time_s <= lowest[row]]
    return max(not_back, not_ahead, key=len)


def merge_warning(taken: int, left: int) -> str:
    """Return the warning that neighbouring samples were merged."""
    return (
        f"{taken:,} samples were taken and merged into {left:,}: the smallest and the largest values remain, but "
        "averages count only the remaining samples"
    )


def usual_distance(time_s: array[float]) -> float | None:
    """Return the 99th percentile of the intervals between samples, in seconds; None if there are no intervals."""
    distances = sorted(after - before for before, after in pairwise(time_s))
    return distances[len(distances) * 99 // 100] if distances else None
