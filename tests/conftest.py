"""Run the command line as a user does: a real process, in a folder of its own."""

from __future__ import annotations

import ctypes
import gc
import importlib.metadata
import os
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import surroundings
from tests.surroundings import HANGING_S

surroundings.settle()
pytest.register_assert_rewrite("tests.waiting")

_STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"}
_OF_LIBRARIES = {("fc-list",), ("system_profiler",)}
"""Matplotlib lists the fonts with them when it finds no list of before."""
_PR_SET_CHILD_SUBREAPER = 36
_forbidden: list[str] = []
"""The test that runs, when it is to start no process."""

NEWEST_TYPER = pytest.mark.skipif(
    tuple(map(int, importlib.metadata.version("typer").split(".")[:2])) < (0, 29),
    reason="older releases of typer have other words and another layout",
)
"""For tests of what typer itself prints."""
BURNERS = Path(__file__).parent / "burners"

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def command_line(line: object = "", *words: object) -> list[str]:
    """Return the argument list that runs nncf-tools with a line, which is split as by a shell, and more words."""
    return [sys.executable, "-m", "nncftools", *shlex.split(str(line)), *map(str, words)]


def burner(name: str, *words: object) -> list[str]:
    """Return the argument list that runs a burner without the site packages, so that it stays small."""
    return [sys.executable, "-S", "-E", str(BURNERS / f"{name}.py"), *map(str, words)]


def pytest_collection_finish() -> None:
    """Collect garbage seldom: with what tests and Matplotlib import, each full pass costs 0.1 s."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what runs the command line in a process of its own."""
    if "nncf_tools" in getattr(item, "fixturenames", ()):
        item.add_marker("process")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let only a test start processes that is marked for it, so that the inner loop stays quick."""
    _forbidden[:] = [] if {"process", "real"} & {mark.name for mark in item.iter_markers()} else [item.nodeid]
    try:
        return (yield)
    finally:
        _forbidden.clear()


def _start_none_unmarked(event: str, arguments: tuple[object, ...]) -> None:
    """Fail the test that starts a process and is not marked; an audit hook."""
    if event in _STARTS and _forbidden and arguments[:1] not in _OF_LIBRARIES:
        pytest.fail(f"{_forbidden[0]} starts a process ({event}): mark it with @pytest.mark.process")


sys.addaudithook(_start_none_unmarked)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List what was not run: the kinds of tests that are off by default, and skipped tests with their reasons."""
    if terminalreporter.config.option.markexpr in terminalreporter.config.getini("addopts"):
        terminalreporter.write_line("left out: long tests (-m long), tests of real tools (-m real): .ci/run runs them")
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.getreports("skipped"))
    for reason, times in reasons.items():
        terminalreporter.write_line(f"left out: {times} test{'s' * (times > 1)}: {reason}")


@pytest.fixture(autouse=True)
def _same_signals() -> Iterator[None]:
    """Have each test leave signals as it found them, and adopt no orphans: later tests would inherit both."""
    before = surroundings.signals()
    yield
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    assert surroundings.signals() == before


@pytest.fixture
def nncf_tools(tmp_path: Path) -> Run:
    """Run nncf-tools in ``tmp_path``, 80 columns wide and without colour."""

    def run(*words: object, env: dict[str, str] | None = None, **options: Any) -> subprocess.CompletedProcess[str]:  # noqa: ANN401 — passed on to subprocess
        environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", **(env or {})}
        options = {"cwd": tmp_path, "capture_output": True, "text": True, "timeout": HANGING_S, **options}
        return subprocess.run(command_line(*words), env=environment, check=False, **options)

    return run
