"""NNCF's memory monitor (``memory_monitor.py``): rows of seconds and a value, then total time and maximum.

``report --format memory-log`` writes the same format. So does llm_bench of OpenVINO GenAI, with a third line at the
end: the start in whole Unix seconds. Only the last line, ``Max memory: 900.000 (MiB)``, gives the unit. The file name
gives the metric, and whether the first value was subtracted from all: ``system_memory_usage_from-zero.txt``; in
llm_bench, ``rss_memory_usage_mem_increase_0.txt``; in the older ``memory_logger.py``,
``system-normalized_memory_usage.txt``.
"""

from __future__ import annotations

import re
from typing import Any

from nncftools.errors import SessionFileError
from nncftools.importers.source import Head, Source
from nncftools.importers.table import RowLog
from nncftools.intake import LARGEST
from nncftools.metrics import MEMORY
from nncftools.session.samples import TIME
from nncftools.session.session import Session
from nncftools.units import MemoryUnit

_ALIASES = {"rss_top": "rss", "system-normalized": "system"}
_METRICS = "|".join((*MEMORY, *_ALIASES))
_NAME = re.compile(rf"(?:.*[^a-z])?((?:{_METRICS})(?:@[\w.]+?)?)_memory_usage(.*)")
_FROM_ZERO = ("_from-zero", "_mem_increase", "system-normalized_")
_NEVER_ZERO = ("rss", "vms", "pss", "system")
"""A running program has some of each."""
_ROW = re.compile(rb"(\d+(?:\.\d+)?(?:e-\d+)?) -?\d+\.\d{3}")
_OURS = re.compile(rb"\d+\.\d{3} ")
"""Only nncf-tools writes times with three decimals."""
_NOTHING = (b"No measurements recorded.", b"Total time: no samples were recorded")
_TIMESTAMP = re.compile(rb"Timestamp: (\d{1,10})\s*")
_TOTAL = re.compile(rb"Total time: (\d+(?:\.\d+)?(?:e-\d+)?)\s*")
_MAXIMUM = re.compile(rb"Max memory: (-?\d+(?:\.\d+)?) \((B|KiB|MiB|GiB|KB|MB|GB)\)\s*")
_ROUNDED = 0.00051
"""Values are written with three decimals."""


def recognises(head: Head) -> bool:
    """Return whether it begins with rows that start at 0 or lie in a file of that name, or says that there are none."""
    if head.text.startswith(_NOTHING):
        return True
    first = _ROW.fullmatch(head.line(0))
    if first is None:
        return False
    begins_at_zero = float(first[1]) == 0 and _ROW.fullmatch(head.line(1)) is not None
    return begins_at_zero or _NAME.fullmatch(head.name) is not None or b"\nMax memory: " in head.text


def read(source: Source, metric: str | None = None, unit: MemoryUnit = MemoryUnit.MiB) -> Session:
    """Return the session of the log.

    ``metric`` overrides the one in the file name; ``unit`` is used when the last line is missing. Raises
    SessionFileError.
    """
    if source.head.text.startswith(_NOTHING):
        raise SessionFileError(f"{source.path}: nothing was recorded, the log says: {source.head.line(0).decode()}")
    named = _NAME.fullmatch(source.head.name)
    if metric is None and named is None:
        names = "NNCF's names are rss_memory_usage.txt, system_memory_usage.txt"
        source.problems.warn(f"the file name does not give the metric, RSS is assumed; {names}")
    metric = metric or (named[1] if named else "rss")
    return _Log(source, _ALIASES.get(metric, metric), unit).read()


class _Log(RowLog):
    recorder = "nncf"
    lowest = -LARGEST
    ends_open = True

    def __init__(self, source: Source, metric: str, unit: MemoryUnit) -> None:
        self.metrics = [metric]
        self._unit_assumed = unit
        super().__init__(source, (TIME, metric))

    def reset(self) -> None:
        super().reset()
        self._unit: MemoryUnit | None = None
        self._maximum: float | None = None

    def take_line(self, _number: int, line: bytes, /) -> bool:
        if match := _TIMESTAMP.fullmatch(line):
            self.began = float(match[1])
        elif match := _MAXIMUM.fullmatch(line):
            self._maximum = float(match[1])
            self._unit = MemoryUnit(match[2].decode())
            self.over = True
        else:
            return _TOTAL.fullmatch(line) is not None
        return True

    def known(self) -> dict[str, Any]:
        warn = self._source.problems.warn
        if self._unit is None:
            warn(f"the last line, which gives the unit, is missing: {self._unit_assumed} is assumed")
        unit = self._unit or self._unit_assumed
        self.unit = unit.factor
        values = self.table.columns()[self.metrics[0]]
        highest, lowest = max(values, default=0.0), min(values, default=0.0)
        if self._maximum is not None and abs(highest - self._maximum) > _ROUNDED:
            differs = f"a maximum of {self._maximum:.3f} {unit}, the rows reach {highest:.3f}"
            warn(f"the last line gives {differs}: rows are missing, or units are mixed")
        for value in (highest, lowest):
            if abs(value) * unit.factor > LARGEST:
                raise SessionFileError(f"{self._source.path}: {value:g} {unit} is impossible: its unit or row is wrong")
        from_zero = any(mark in self._source.head.name for mark in _FROM_ZERO)
        if not from_zero and lowest < 0:
            from_zero = True
            warn("values below zero: they are taken as relative to an unknown first sample")
        is_ours = _OURS.match(self._source.head.line(0)) is not None
        may_be_zero = is_ours or self.metrics[0] not in _NEVER_ZERO
        if not from_zero and not may_be_zero and highest > 0 and values[0] == 0:
            from_zero = True
            warn("the first value is 0: all are taken as relative to an unknown first sample")
        return {"from_zero": from_zero, "finished": self.over}
