"""The options and the marker of the pytest plugin.

pytest loads this module at every start if nncf-tools is installed. The other modules are imported only if ``--memory``
is given.
"""

from __future__ import annotations

import os
import pathlib

import pytest

_MARKER = (
    "limit_peak(size, *, from_zero=True): with --memory, fail the test if the memory of the process and child "
    'processes rises by more than a size such as "200 MiB" during the test; with from_zero=False, all memory counts.'
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--memory`` and the options that go with ``--memory``."""
    group = parser.getgroup("memory", "memory of each test (nncf-tools)")
    group.addoption("--memory", action="store_true", help="show the tests with the largest peaks and apply limit_peak")
    group.addoption("--memory-top", type=int, default=10, metavar="N", help="tests to show (default: 10, 0: all)")
    group.addoption("--memory-interval", type=float, default=0.01, metavar="S", help="seconds per sample (0.01)")
    group.addoption("--memory-output", metavar="FILE.json", help="write a recording with an operation per test")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker. With ``--memory``, also register the plugins that measure tests and show peaks.

    Raises UsageError.
    """
    config.addinivalue_line("markers", _MARKER)
    output = config.getoption("--memory-output")
    if config.getoption("--memory-top") < 0:
        raise pytest.UsageError("option --memory-top: a number of at least 0 expected")
    if not config.getoption("--memory"):
        if output is not None:
            raise pytest.UsageError("option --memory-output: only with --memory")
        return
    if output is not None:
        output = _recording_path(config, output)
    from nncftools.testing.measuring import Measuring, Summary
    from nncftools.testing.meter import Meter

    try:
        meter = Meter(config.getoption("--memory-interval"), is_kept=output is not None)
    except ValueError as error:
        raise pytest.UsageError(f"option --memory-interval: {error}") from error
    config.pluginmanager.register(Measuring(config, meter, output), "nncf-tools-measuring")
    config.pluginmanager.register(Summary(config.getoption("--memory-top")), "nncf-tools-summary")


def _recording_path(config: pytest.Config, given: str) -> pathlib.Path:
    """Return the path for this process's recording.

    For a rank of a job, or for a pytest-xdist worker, the name of the rank or worker is put before the extension.
    """
    from nncftools.files import file_behind
    from nncftools.session import launcher

    path = pathlib.Path(config.invocation_params.dir, given)
    if not path.parent.is_dir():
        raise pytest.UsageError(f"option --memory-output: there is no folder {path.parent}")
    try:
        if file_behind(path) is None:
            if config.getoption("numprocesses", None):
                raise pytest.UsageError(
                    f"option --memory-output: {given} is not a file, but with -n each worker writes a file of its own"
                )
            return path
    except IsADirectoryError as error:
        raise pytest.UsageError(f"option --memory-output: {given} is a folder; a file name expected") from error
    except OSError as error:
        raise pytest.UsageError(f"option --memory-output: cannot write {given}: {error.strerror}") from error
    worker = getattr(config, "workerinput", None)
    suffix = launcher.make_suffix(os.environ) + (f".{worker['workerid']}" if worker else "")
    stem, dot, endings = path.name.partition(".")
    return path.with_name(f"{stem}{suffix}{dot}{endings}")
