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

from nncftools.importers.source import RowLog, Source
from nncftools.intake import LARGEST
from nncftools.metrics import MEMORY
from nncftools.session.samples import TIME
from nncftools.units import MemoryUnit

_ALIASES = {"rss_top": "rss", "system-normalized": "system"}
_NAME = rf"(?:.*[^a-z])?((?:{'|'.join((*MEMORY, *_ALIASES))})(?:@[\w.]+?)?)_memory_usage.*"
_FROM_ZERO = re.compile("_from-zero|_mem_increase|system-normalized_")
_NEVER_ZERO = ("rss", "vms", "pss", "system")
"""A running program never has 0 of these."""
_ROW = r"\d+(\.\d+)?(e-\d+)? -?\d+\.\d{3}(\n|$)"
_OURS = re.compile(rb"\d+\.\d{3} ")
"""Only nncf-tools writes times with three decimals."""


class Log(RowLog):
    """Reads rows that begin at 0, end with the maximum, or are in a file with NNCF's name; or an empty log."""

    head = re.compile(
        rf".*\n(No measurements recorded\.|Total time: no samples|0+(\.0+)?(e-0+)? -?\d+\.\d{{3}}\n{_ROW}|"
        rf"{_ROW}(.*\n)*Max memory: )|{_NAME}\n{_ROW}".encode()
    )
    recorder = "nncf"
    lowest = -LARGEST
    other_may_end_open = True
    others = (
        r"(Timestamp: (?P<began>\d{1,10})|Total time: \d+(\.\d+)?(e-\d+)?|"
        r"Max memory: -?\d+(\.\d+)? \((?P<unit>B|KiB|MiB|GiB|KB|MB|GB)\))\s*"
    )
    last = "unit"

    def __init__(self, source: Source, metric: str | None = None, unit: MemoryUnit = MemoryUnit.MiB) -> None:
        """Read nothing yet; ``metric`` overrides the file name, ``unit`` is used if the last line is missing."""
        named = re.fullmatch(_NAME, source.path.name)
        if metric is None and named is None:
            source.warn(
                "the file name does not give the metric, RSS is assumed; "
                "NNCF's names are rss_memory_usage.txt, system_memory_usage.txt"
            )
        metric = metric or (named[1] if named else "rss")
        self.columns = (TIME, _ALIASES.get(metric, metric))
        self._unit = unit
        super().__init__(source)

    def known(self) -> dict[str, Any]:
        """Return the unit and start that the last lines give, and whether the values are relative."""
        warn = self.source.warn
        unit = MemoryUnit(self.found.get("unit", self._unit))
        if "unit" not in self.found:
            warn(f"the last line, which gives the unit, is missing: {unit} is assumed")
        metric = self.columns[1]
        values = self.table.columns[metric]
        may_be_0 = _OURS.match(self.source.head) or metric not in _NEVER_ZERO
        is_from_zero = bool(_FROM_ZERO.search(self.source.path.name))
        rises_from_zero = values[0] == 0 < max(values)
        if not is_from_zero and (min(values) < 0 or (rises_from_zero and not may_be_0)):
            is_from_zero = True
            warn("some values are below zero, or the first is 0: all are taken as relative to an unknown first sample")
        self.unit = unit.factor
        if "began" in self.found:
            self.began = float(self.found["began"])
        return {
            "from_zero": is_from_zero,
            "finished": "unit" in self.found,
        }
