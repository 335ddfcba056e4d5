"""The session as an object: one recorded run with its operations and the place of its peak."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar, cast

from nncftools import intake
from nncftools.analysis.operation import Operation
from nncftools.analysis.operations import operations
from nncftools.analysis.peak_place import PeakPlace
from nncftools.analysis.peaks import peaks
from nncftools.metrics import is_memory
from nncftools.session.model import SessionData
from nncftools.session.samples import are_whole
from nncftools.session.session import load, save

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import Self


_Value = TypeVar("_Value")


class Session(SessionData):
    """One recorded run. Inside, everything is bytes and seconds; null is unknown, never 0.

    Load with ``Session.load(path)``, write with ``session.save(path)``.
    """

    @classmethod
    def of(cls, data: SessionData) -> Self:
        """Return the session with this content, and with the peaks that it does not know yet."""
        session = cls(**{name: getattr(data, name) for name in data.__struct_fields__})
        if any(is_memory(name) and name not in session.peaks for name in session.samples):
            session.peaks = peaks(session) | session.peaks
        return session

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a session or a journal, either also gzipped.

        Raises SessionFileError, which names the file, the place and what was expected.
        """
        return cls.of(load(path))

    def once(self, compute: Callable[[Self], _Value]) -> _Value:
        """Return what a function makes of this session; it is called again when one of these parts was replaced."""
        parts = [self.marks, self.samples, self.processes, self.snapshots, self.rss_peak]
        key = compute, len(self.marks), *map(id, [self, *parts])
        if key not in self.unsaved.figures:
            self.unsaved.figures[key] = parts, compute(self)
        return cast("_Value", self.unsaved.figures[key][1])

    @property
    def operations(self) -> list[Operation]:
        """The marked operations with their figures, in the order of their starts."""
        return list(self.once(operations)[0])

    @property
    def peak_place(self) -> PeakPlace | None:
        """The moment of the RSS peak and its operation; None when the moment is unknown."""
        return self.once(operations)[1]

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
            if are_whole(name, values) and self.samples.figures(name).highest < intake.LARGEST:
                table[name] = table[name].round().astype("Int64")
        return table

    def save(self, path: str | os.PathLike[str]) -> pathlib.Path:
        """Write the session, gzipped when the name ends in ``.gz``, and return the path.

        The file appears whole or not at all. Keys of the loaded file that this version does not know are kept.
        Raises OSError.
        """
        return save(self, path)
