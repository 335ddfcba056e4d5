"""The hooks of the pytest plugin that measure the tests of this process.

A test fails if the peak exceeds the limit in the test's ``@pytest.mark.limit_peak``. A table at the end of pytest's
output has the largest peaks.
"""

from __future__ import annotations

import functools
import pathlib
import textwrap
import warnings
from collections.abc import Generator
from dataclasses import dataclass

import pluggy
import pytest

from nncftools.errors import NncfToolsError
from nncftools.testing.meter import KERNEL, SAMPLED, UNSAMPLED, Meter, Peak, load_peak, store_peak
from nncftools.units import MemoryUnit, count_text, size_from, size_text

_MARKER = "limit_peak"
_SOURCES = {
    KERNEL: "peak RSS of one process, from the kernel",
    SAMPLED: "sampled",
    UNSAMPLED: "the test's process only",
}


@dataclass(frozen=True)
class Limit:
    """The limit on a test's memory peak."""

    size: int
    """The limit in bytes."""
    unit: MemoryUnit
    from_zero: bool = True
    """True: the limit applies to growth since the test started; False: to the whole peak."""


def limit_of(item: pytest.Item) -> Limit | None:
    """Return the limit in the marker that is closest to the test, or None. Raises ValueError."""
    marker = item.get_closest_marker(_MARKER)
    if marker is None:
        return None
    text = marker.args[0] if len(marker.args) == 1 else None
    from_zero = marker.kwargs.get("from_zero", True)
    is_known = marker.kwargs.keys() <= {"from_zero"}
    if not (is_known and isinstance(text, str) and isinstance(from_zero, bool)):
        given = [*map(repr, marker.args), *marker.kwargs]
        expected = 'expected one size, as in limit_peak("200 MiB") or limit_peak("2 GiB", from_zero=False)'
        raise ValueError(f"{item.nodeid}: {expected}, found {_MARKER}({', '.join(given)})")
    try:
        return Limit(*size_from(text), from_zero)
    except ValueError as error:
        raise ValueError(f"{item.nodeid}: {_MARKER}: {error}") from error


def excess(limit: Limit, peak: Peak, largest_process: tuple[str, int] | None) -> str | None:
    """Return a message if a test's peak exceeded the limit. Return None if not, or if the peak is unknown.

    ``largest_process`` is used for a sampled peak: command and bytes of the largest process in the largest sample.
    """
    size = peak.above_start if limit.from_zero else peak.size
    if size is None or size <= limit.size:
        return None
    source = _SOURCES[peak.known]
    if peak.known == SAMPLED and largest_process is not None:
        command, rss = largest_process
        source += f"; the largest process held {size_text(rss)}: {textwrap.shorten(command, 60, placeholder=' …')}"
    unit = limit.unit
    if unit.text(size) == unit.text(limit.size):
        unit = MemoryUnit.B
    counted = "above the memory at the start of the test" if limit.from_zero else "in all"
    rise = "" if peak.above_start is None else f"by {unit.label(peak.above_start)} "
    figures = f"memory rose {rise}to {unit.label(peak.size)}"
    return f"{figures}; the limit is {unit.label(limit.size)} {counted} ({source})"


class Measuring:
    """Measures each test, from setup to teardown.

    The recording starts with the first test. So a process that runs no tests, such as pytest-xdist's controller, starts
    no sampler.
    """

    def __init__(self, config: pytest.Config, meter: Meter, output: pathlib.Path | None) -> None:
        """Measure with ``meter``; write the recording to ``output`` if ``output`` is not None."""
        self._config = config
        self.meter = meter
        self._output = output
        self._runs = False
        self._is_lost = False
        self._error: str | None = None
        self._has_reported = False

    @pytest.hookimpl(hookwrapper=True)
    def pytest_make_collect_report(self) -> Generator[None, pluggy.Result[pytest.CollectReport], None]:
        """Report an invalid limit as a collection error. A worker of pytest-xdist must not raise any other error."""
        report = (yield).get_result()
        try:
            for node in report.result:
                if isinstance(node, pytest.Item):
                    limit_of(node)
        except ValueError as error:
            report.outcome = "failed"
            report.longrepr = str(error)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Start measuring a test."""
        if self.meter.is_own_process:
            if not self.meter.is_started:
                try:
                    self.meter.start()
                except NncfToolsError as error:
                    self._report_loss(str(error), item.nodeid)
            self._runs = True
            self._error = None
            self._has_reported = False
            self.meter.begin(item.nodeid)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pluggy.Result[pytest.TestReport], None]:
        """Measure after each phase (setup, call, teardown). If the test exceeded the limit, fail this phase.

        The failure is set before the report is made, so that xfail and other hooks see the failure.
        """
        line = failure = None
        if self._runs and self.meter.is_own_process:
            line = self._judge_phase(item, call)
            if line is not None and call.excinfo is None:
                fail = functools.partial(pytest.fail, line, pytrace=False)
                failure = pytest.CallInfo.from_call(fail, when="call").excinfo
                call.excinfo = failure
        result = yield
        report = result.get_result()
        if line is not None and call.excinfo is not failure and report.failed:
            report.sections.append(("memory limit", line))

    def _judge_phase(self, item: pytest.Item, call: pytest.CallInfo[None]) -> str | None:
        """Return a message if the test has exceeded the limit or the limit is invalid; otherwise None.

        Only the first message of a test is returned.
        """
        unimportant = (pytest.skip.Exception, pytest.xfail.Exception)
        if call.excinfo is not None and not isinstance(call.excinfo.value, unimportant):
            self._error = self._error or call.excinfo.typename
        if call.when == "setup" and call.excinfo is None:
            return None
        line = limit = peak = None
        try:
            limit = limit_of(item)
        except ValueError as error:  # a marker was added after the collection of the tests
            line = str(error)
        if call.when == "teardown":
            peak = self._end(item)
        elif limit is not None:
            peak = self.meter.peak()
        if limit is not None and peak is not None:
            line = excess(limit, peak, self.meter.largest_process())
        if line is None or self._has_reported:
            return None
        self._has_reported = True
        return line

    def _end(self, item: pytest.Item) -> Peak:
        self._runs = False
        peak = self.meter.end(self._error)
        store_peak(peak, item.user_properties)
        if peak.known == UNSAMPLED:
            self._report_loss("the sampler has ended", item.nodeid)
        return peak

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """End the recording. Write it if there is an output file."""
        if not (self.meter.is_own_process and self.meter.is_started):
            return
        if self._output is None:
            self.meter.reader.drop()
            return
        try:
            for text in self.meter.save(self._output):
                self._report_loss(text)
        except OSError as error:
            self._warn(f"{self._output}: the recording cannot be written: {error.strerror or error}")

    def _report_loss(self, why: str, nodeid: str = "") -> None:
        if not self._is_lost:
            self._is_lost = True
            self._warn(f"{why}: from now on the memory of child processes is unknown", nodeid)

    def _warn(self, text: str, nodeid: str = "") -> None:
        """Show a warning in pytest's summary. Warning filters such as ``-W error`` do not apply here."""
        message = warnings.WarningMessage(pytest.PytestWarning(text), pytest.PytestWarning, "nncf-tools", 0, line="")
        record = {
            "warning_message": message,
            "when": "runtest",
            "nodeid": nodeid,
            "location": None,
        }
        self._config.hook.pytest_warning_recorded.call_historic(kwargs=record)


_ROW = "{:>10}  {:>11}  {:<9}  {}"
_UNIT = MemoryUnit.MiB
_MEANING = {
    SAMPLED: "sampled: process and children together; the peak between samples may be higher",
    UNSAMPLED: "unsampled: the process only, because there was no sampler",
}


class Summary:
    """Collects peaks from the reports of tests, also from reports of pytest-xdist's workers."""

    def __init__(self, most: int) -> None:
        """Show the tests with the largest peaks: at most ``most`` tests, or all tests if ``most`` is 0."""
        self._most = most
        self._peaks: dict[str, Peak] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Store the peak of a finished test. If a test is repeated, the new peak replaces the old peak."""
        peak = load_peak(report.user_properties) if report.when == "teardown" else None
        if peak is not None:
            self._peaks[report.nodeid] = peak

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the table of the largest peaks."""
        if not self._peaks:
            return
        sizes = {name: peak.size or 0 for name, peak in self._peaks.items()}
        ranked = sorted(sizes, key=sizes.__getitem__, reverse=True)
        shown = ranked[: self._most or None]
        number = count_text(len(ranked), "test")
        if len(shown) < len(ranked):
            number = f"{count_text(len(shown), 'largest peak')} of {number}"
        terminalreporter.section(f"memory: {number}")
        terminalreporter.write_line(_ROW.format(f"peak {_UNIT}", "above start", "known", "test"))
        known = set()
        for name in shown:
            peak = self._peaks[name]
            known.add(peak.known)
            texts = (_UNIT.text(peak.size), _UNIT.text(peak.above_start))
            terminalreporter.write_line(_ROW.format(*texts, peak.known, name))
        for source, meaning in _MEANING.items():
            if source in known:
                terminalreporter.write_line(meaning)
