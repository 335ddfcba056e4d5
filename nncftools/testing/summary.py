"""The table of the largest peaks, at the end of pytest's output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nncftools.testing import properties
from nncftools.testing.peaks import SAMPLED, UNSAMPLED
from nncftools.units import MemoryUnit

if TYPE_CHECKING:
    import pytest

    from nncftools.testing.peaks import Peak

_ROW = "{:>10}  {:>11}  {:<9}  {}"
_UNIT = MemoryUnit.MiB
_MEANING = {
    SAMPLED: "sampled: process and children together; the peak between samples may be higher",
    UNSAMPLED: "unsampled: the process only, because there was no sampler",
}


class Summary:
    """Collects peaks from the reports of tests, also from pytest-xdist's workers."""

    def __init__(self, most: int) -> None:
        """Show at most ``most`` tests; 0 shows all."""
        self._most = most
        self._peaks: dict[str, Peak] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Store the peak of a finished test; a repeated run replaces it."""
        peak = properties.taken(report.user_properties) if report.when == "teardown" else None
        if peak is not None:
            self._peaks[report.nodeid] = peak

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the table."""
        if not self._peaks:
            return
        ranked = sorted(self._peaks.items(), key=lambda test: -(test[1].size or 0))
        shown = ranked[: self._most or None]
        terminalreporter.section(f"memory: {_number(len(shown), len(ranked))}")
        terminalreporter.write_line(_ROW.format(f"peak {_UNIT}", "above start", "known", "test"))
        for name, peak in shown:
            sizes = (_UNIT.text(peak.size), _UNIT.text(peak.above_start))
            terminalreporter.write_line(_ROW.format(*sizes, peak.known, name))
        for known, meaning in _MEANING.items():
            if any(peak.known == known for _, peak in shown):
                terminalreporter.write_line(meaning)


def _number(shown: int, measured: int) -> str:
    if shown == measured:
        return "1 test" if measured == 1 else f"{measured:,} tests"
    return f"{shown:,} largest {'peak' if shown == 1 else 'peaks'} of {measured:,} tests"
