from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

import pytest


@pytest.mark.parametrize(
    "start",
    [
        lambda: subprocess.run(["true"], check=False),
        lambda: os.posix_spawn("/bin/true", ["true"], os.environ),
        lambda: os.system("true"),  # noqa: S605 — a way to start a process
    ],
    ids=["subprocess", "posix_spawn", "system"],
)
def test_without_the_mark_no_process_is_started(start: Callable[[], object]) -> None:
    """A test without the ``process`` mark fails if it starts a process; the message names the remedy."""
    with pytest.raises(pytest.fail.Exception, match=r"test_without_the_mark.* starts a process .*: mark it with"):
        start()


@pytest.mark.process
def test_with_the_mark_processes_are_started() -> None:
    """A test that is marked may start them."""
    assert subprocess.run(["true"], check=False).returncode == 0


@pytest.mark.usefixtures("nncf_tools")
def test_who_takes_the_command_line_is_marked(request: pytest.FixtureRequest) -> None:
    """What takes the command line as a process of its own need not be marked by hand."""
    assert request.node.get_closest_marker("process") is not None
