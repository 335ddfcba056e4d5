"""Hooks that measure the tests of this process and fail those that exceed their limit."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import pytest

from nncftools.errors import NncfToolsError
from nncftools.testing import properties
from nncftools.testing.limits import excess, limit_of
from nncftools.testing.peaks import UNSAMPLED

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Generator

    import pluggy

    from nncftools.testing.meter import Meter
    from nncftools.testing.peaks import Peak

_NO_FAILURE = (pytest.skip.Exception, pytest.xfail.Exception)


class Measuring:
    """Measures each test from setup to teardown.

    The recording starts with the first test. A process that runs no tests, like pytest-xdist's controller, has no
    sampler.
    """

    def __init__(self, config: pytest.Config, meter: Meter, output: pathlib.Path | None) -> None:
        """Measure with ``meter``, and write its recording to ``output``."""
        self._config = config
        self._meter = meter
        self._output = output
        self._runs = False
        self._is_lost = False
        self._error: str | None = None
        self._has_reported = False

    @pytest.hookimpl(hookwrapper=True)
    def pytest_make_collect_report(self) -> Generator[None, pluggy.Result[pytest.CollectReport], None]:
        """Turn an invalid limit into a collection error: pytest-xdist's workers may raise no other error."""
        report = (yield).get_result()
        try:
            for node in report.result:
                if isinstance(node, pytest.Item):
                    limit_of(node)
        except ValueError as error:
            report.outcome, report.longrepr = "failed", str(error)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Start to measure a test."""
        if self._meter.is_own_process:
            if not self._meter.is_started:
                self._start(item.nodeid)
            self._runs, self._error, self._has_reported = True, None, False
            self._meter.begin(item.nodeid)

    def _start(self, nodeid: str) -> None:
        try:
            self._meter.start()
        except NncfToolsError as error:
            self._report_loss(str(error), nodeid)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pluggy.Result[pytest.TestReport], None]:
        """Measure up to this step, and fail the step in which the test exceeded its limit.

        The failure is set before the report is made, so that xfail and other hooks see it.
        """
        line = failure = None
        if self._runs and self._meter.is_own_process:
            line = self._line(item, call)
            if line is not None and call.excinfo is None:
                call.excinfo = failure = _failed(line)
        result = yield
        if line is not None and call.excinfo is not failure and result.get_result().failed:
            result.get_result().sections.append(("memory limit", line))

    def _line(self, item: pytest.Item, call: pytest.CallInfo[None]) -> str | None:
        """Return the message on the test's limit after a step, at most once per test; otherwise None."""
        if call.excinfo is not None and not isinstance(call.excinfo.value, _NO_FAILURE):
            self._error = self._error or call.excinfo.typename
        ends = call.when == "teardown"
        if call.when == "setup" and call.excinfo is None:
            return None
        line = limit = None
        try:
            limit = limit_of(item)
        except ValueError as error:  # a marker was added after collection
            line = str(error)
        peak = self._end(item) if ends else None if limit is None else self._meter.peak()
        if limit is not None and peak is not None:
            line = excess(limit, peak, self._meter.largest_process())
        if line is None or self._has_reported:
            return None
        self._has_reported = True
        return line

    def _end(self, item: pytest.Item) -> Peak:
        self._runs = False
        peak = self._meter.end(self._error)
        properties.put(peak, item.user_properties)
        if peak.known == UNSAMPLED:
            self._report_loss("the sampler has ended", item.nodeid)
        return peak

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """End the recording and write it."""
        if not (self._meter.is_own_process and self._meter.is_started):
            return
        if self._output is None:
            self._meter.drop()
            return
        try:
            for text in self._meter.save(self._output):
                self._report_loss(text)
        except OSError as error:
            self._warn(f"{self._output}: the recording cannot be written: {error.strerror or error}")

    def _report_loss(self, why: str, nodeid: str = "") -> None:
        if not self._is_lost:
            self._is_lost = True
            self._warn(f"{why}: from now on the memory of child processes is unknown", nodeid)

    def _warn(self, text: str, nodeid: str = "") -> None:
        """Show a warning among pytest's own; at this point no filter turns it into an error."""
        message = warnings.WarningMessage(pytest.PytestWarning(text), pytest.PytestWarning, "nncf-tools", 0, line="")
        record = {"warning_message": message, "when": "runtest", "nodeid": nodeid, "location": None}
        self._config.hook.pytest_warning_recorded.call_historic(kwargs=record)


def _failed(line: str) -> pytest.ExceptionInfo[BaseException] | None:
    return pytest.CallInfo.from_call(lambda: pytest.fail(line, pytrace=False), when="call").excinfo
