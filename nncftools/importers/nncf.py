"""NNCF's memory monitor (``memory_monitor.py``): rows of seconds and a value, then total time and maximum.

``report --format memory-log`` writes the same format. So does llm_bench of OpenVINO GenAI, with a third line at the
end: the start in whole Unix seconds. Only the last line, ``Max memory: 900.000 (MiB)``, gives the unit. The file name
gives the metric, and whether the first value was subtracted from all: ``system_memory_usage_from-zero.txt``; in
llm_bench, ``rss_memory_usage_mem_increase_0.txt``; in the older ``memory_logger.py``,
``system-normalized_memory_usage.txt``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
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
_NAME = re.compile(rf"(?:.*[^a-z])?((?:{'|'.join((*MEMORY, *_ALIASES))})(?:@[\w.]+?)?)_memory_usage(.*)")
_FROM_ZERO = re.compile("_from-zero|_mem_increase|system-normalized_")
_NEVER_ZERO = ("rss", "vms", "pss", "system")
"""A running program has some of each."""
_ROW = rb"\d+(?:\.\d+)?(?:e-\d+)? -?\d+\.\d{3}"
_FIRST_ROW = re.compile(rb"%b(?:\n|$)" % _ROW)
_ROWS_FROM_0 = re.compile(rb"0+(?:\.0+)?(?:e-\d+)? -?\d+\.\d{3}\n%b(?:\n|$)" % _ROW)
_OURS = re.compile(rb"\d+\.\d{3} ")
"""Only nncf-tools writes times with three decimals."""
_NOTHING = (b"No measurements recorded.", b"Total time: no samples were recorded")
_ROUNDED = 0.00051
"""Values are written with three decimals."""


def recognises(head: Head) -> bool:
    """Return whether it begins with rows that start at 0 or lie in a file of that name, or says that there are none."""
    if head.text.startswith(_NOTHING) or _ROWS_FROM_0.match(head.text):
        return True
    is_named = _NAME.fullmatch(head.name) is not None or b"\nMax memory: " in head.text
    return is_named and _FIRST_ROW.match(head.text) is not None


def read(source: Source, metric: str | None = None, unit: MemoryUnit = MemoryUnit.MiB) -> Session:
    """Return the session of the log.

    ``metric`` overrides the one in the file name; ``unit`` is used when the last line is missing. Raises
    SessionFileError.
    """
    if source.head.text.startswith(_NOTHING):
        raise SessionFileError(f"{source.path}: nothing was recorded, the log says: {source.head.line(0).decode()}")
    if metric is None:
        named = _NAME.fullmatch(source.head.name)
        metric = named[1] if named else "rss"
        if named is None:
            names = "NNCF's names are rss_memory_usage.txt, system_memory_usage.txt"
            source.problems.warn(f"the file name does not give the metric, RSS is assumed; {names}")
    return _Log(source, _ALIASES.get(metric, metric), unit).read()


class _Log(RowLog):
    recorder = "nncf"
    lowest = -LARGEST
    other_may_end_open = True
    others = (
        r"(Timestamp: (?P<began>\d{1,10})|Total time: \d+(\.\d+)?(e-\d+)?|"
        r"Max memory: (?P<maximum>-?\d+(\.\d+)?) \((?P<unit>B|KiB|MiB|GiB|KB|MB|GB)\))\s*"
    )
    last = "unit"

    def __init__(self, source: Source, metric: str, unit: MemoryUnit) -> None:
        self.metrics = [metric]
        self._unit_assumed = unit
        super().__init__(source, (TIME, metric))

    def known(self) -> dict[str, Any]:
        warn = self.source.problems.warn
        unit = MemoryUnit(self.found.get("unit", self._unit_assumed))
        if "unit" not in self.found:
            warn(f"the last line, which gives the unit, is missing: {unit} is assumed")
        values = self.table.columns()[self.metrics[0]]
        highest, lowest = max(values, default=0.0), min(values, default=0.0)
        maximum = float(self.found.get("maximum", highest))
        if abs(highest - maximum) > _ROUNDED:
            differs = f"a maximum of {maximum:.3f} {unit}, the rows reach {highest:.3f}"
            warn(f"the last line gives {differs}: rows are missing, or units are mixed")
        for value in (highest, lowest):
            if abs(value) * unit.factor > LARGEST:
                raise SessionFileError(f"{self.source.path}: {value:g} {unit} is impossible: its unit or row is wrong")
        return {
            "unit": unit.factor,
            "began": float(self.found["began"]) if "began" in self.found else None,
            "from_zero": self._is_from_zero(values, lowest, highest),
            "finished": "unit" in self.found,
        }

    def _is_from_zero(self, values: Sequence[float], lowest: float, highest: float) -> bool:
        """Return whether the values are relative to a first sample that is unknown."""
        head = self.source.head
        if _FROM_ZERO.search(head.name):
            return True
        is_rounded = _OURS.match(head.line(0)) is not None or self.metrics[0] not in _NEVER_ZERO
        why = ""
        if lowest < 0:
            why = "values below zero: they"
        elif highest > 0 and values[0] == 0 and not is_rounded:
            why = "the first value is 0: all"
        if why:
            self.source.problems.warn(f"{why} are taken as relative to an unknown first sample")
        return why != ""
