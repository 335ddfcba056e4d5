"""The session: one recorded run as an object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from nncftools.session import store
from nncftools.session.model import FORMAT, VERSION, SessionData
from nncftools.session.operations import operations, peak_place
from nncftools.session.samples import Samples, are_whole

if TYPE_CHECKING:
    import os
    import pathlib
    from collections.abc import Callable

    import pandas as pd
    from typing_extensions import Self

    from nncftools.session.operation import Operation
    from nncftools.session.peak_place import PeakPlace

_TOO_LARGE = 2.0**63
_OPERATIONS, _PEAK_PLACE = "operations", "peak_place"
_Value = TypeVar("_Value")


class Session(SessionData):
    """One recorded run. Inside, everything is bytes and seconds; null is unknown, never 0.

    Load with ``Session.load(path)``, write with ``session.save(path)``.
    """

    @classmethod
    def of(cls, data: SessionData) -> Self:
        """Return the session with this content."""
        session = cls(**{name: getattr(data, name) for name in data.__struct_fields__})
        session.__dict__.update(data.__dict__)
        return session

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a session or a journal, either also gzipped.

        Raises SessionFileError, which names the file, the place and what was expected.
        """
        return cls.of(store.load(path))

    @property
    def operations(self) -> list[Operation]:
        """The marked operations with their figures, in the order of their starts."""
        return list(self._computed_once(_OPERATIONS, lambda: operations(self)))

    @property
    def peak_place(self) -> PeakPlace | None:
        """The moment of the RSS peak and its operation; None when the moment is unknown."""
        return self._computed_once(_PEAK_PLACE, lambda: peak_place(self, self.operations))

    def _computed_once(self, name: str, compute: Callable[[], _Value]) -> _Value:
        """Return what was computed under this name, as long as the fields that it depends on are the same."""
        state = id(self.marks), len(self.marks), id(self.samples), id(self.processes), id(self.peaks.get("rss"))
        known: tuple[tuple[int, ...], _Value] | None = self.__dict__.get(name)
        if known is None or known[0] != state:
            known = self.__dict__[name] = state, compute()
        return known[1]

    @property
    def phases(self) -> list[Operation]:
        """The same as ``operations``, by its former name."""
        return self.operations

    def to_pandas(self) -> pd.DataFrame:
        """Return the samples as a table: a column per metric, indexed by the seconds since the start (``time_s``).

        Bytes and counts are nullable integers (``Int64``, with ``<NA>`` for unknown), seconds are floats (NaN).
        """
        import pandas as pd

        index = pd.Index(self.samples.time_s, name="time_s", dtype=float)
        columns = {name: self.samples[name] for name in self.samples.metrics}
        table: pd.DataFrame = pd.DataFrame(columns, index=index, dtype=float)
        for name, values in columns.items():
            if are_whole(name, values) and self.samples.figures(name).highest < _TOO_LARGE:
                table[name] = table[name].round().astype("Int64")
        return table

    def save(self, path: str | os.PathLike[str]) -> pathlib.Path:
        """Write the session, gzipped when the name ends in ``.gz``, and return the path.

        The file appears whole or not at all. Keys of the loaded file that this version does not know are kept.
        Raises OSError.
        """
        return store.save(self, path)


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

    described = msgspec.json.schema(Session, schema_hook=of_samples)
    session = described["$defs"]["Session"]
    session["properties"]["format"]["const"] = FORMAT
    session["properties"]["version"]["const"] = VERSION
    session["required"] = ["format", "version", *session["required"]]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A recorded run of nncf-tools",
        **described,
    }
