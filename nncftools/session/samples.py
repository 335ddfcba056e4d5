"""The columns of a session: seconds and one array of figures per metric."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import isnan, nan

import msgspec

from nncftools.errors import SessionFileError
from nncftools.metrics import METRICS

TIME = "time_s"
_LARGEST = 2.0**63


class Samples(Mapping[str, "array[float]"]):
    """Columns by metric name: ``array('d')`` of equal length, NaN for unknown.

    ``time_s`` holds the seconds since the session's start, rising. Columns of a loaded session are parsed when first
    asked for; a column that cannot be right raises ``SessionFileError``, which names it and the place.
    """

    def __init__(self, columns: Mapping[str, array[float] | msgspec.Raw], origin: str = "session") -> None:
        """Hold ``columns``; ``origin`` names the file in messages."""
        self._columns = dict(columns)
        self._origin = origin
        if TIME not in self._columns:
            raise self._wrong("", f"the column {TIME!r} is missing")

    def __getitem__(self, name: str) -> array[float]:
        column = self._columns[name]
        if isinstance(column, msgspec.Raw):
            try:
                column = _parse(column)
            except msgspec.DecodeError as error:
                raise self._wrong(f".{name}", str(error)) from error
            self._check(name, column)
            self._columns[name] = column
        return column

    def _check(self, name: str, column: array[float]) -> None:
        values = known(column)
        if name != TIME and len(column) != len(self):
            found = f"{len(self)} values expected, one for each of {TIME!r}, found {len(column)}"
            raise self._wrong(f".{name}", found)
        if (name in METRICS or name == TIME) and values and (min(values) < 0 or max(values) > _LARGEST):
            wrong = min(values) if min(values) < 0 else max(values)
            raise self._wrong(f".{name}[{column.index(wrong)}]", f"a value from 0 to 2^63 expected, found {wrong:g}")
        if name == TIME:
            if len(values) != len(column):
                raise self._wrong(f".{name}", "a number for every sample expected, found null")
            for place, (before, after) in enumerate(pairwise(column), start=1):
                if after < before:
                    raise self._wrong(f".{name}[{place}]", f"time goes back from {before} to {after}")

    def _wrong(self, place: str, what: str) -> SessionFileError:
        return SessionFileError(f"{self._origin}: at `$.samples{place}`: {what}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.time_s)

    @property
    def time_s(self) -> array[float]:
        """Seconds since the session's start."""
        return self[TIME]

    @property
    def metrics(self) -> list[str]:
        """The names of the metrics that were recorded, those known to this version first and in its order."""
        names = [name for name in self._columns if name != TIME]
        return [name for name in METRICS if name in names] + [name for name in names if name not in METRICS]

    def raw(self) -> dict[str, msgspec.Raw]:
        """Return the columns as JSON; those that were never parsed as they were."""
        return {
            name: column if isinstance(column, msgspec.Raw) else msgspec.Raw(_json(name, column))
            for name, column in self._columns.items()
        }


def known(values: array[float]) -> array[float]:
    """Return the values that are known."""
    if not isnan(sum(values)):
        return values
    return array("d", (value for value in values if not isnan(value)))


def _json(name: str, column: array[float]) -> bytes:
    if name in METRICS and METRICS[name].unit == "B":
        try:
            return msgspec.json.encode(list(map(int, column)))
        except ValueError:  # NaN
            return msgspec.json.encode([None if isnan(value) else int(value) for value in column])
    return msgspec.json.encode(column.tolist())  # msgspec writes NaN as null


def _parse(raw: msgspec.Raw) -> array[float]:
    try:
        return array("d", msgspec.json.decode(raw, type=list[float]))
    except msgspec.ValidationError:
        values = msgspec.json.decode(raw, type=list[float | None])
        return array("d", (nan if value is None else value for value in values))
