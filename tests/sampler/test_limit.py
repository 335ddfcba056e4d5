from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nncftools.sampler.target import GRACE_S, LimitGuard
from tests.conftest import HANGING_S
from tests.waiting import until

MIB = 2**20


def limit(action: str, *pids: int) -> tuple[LimitGuard, list[Any], list[Any]]:
    """Return a limit of 50 MiB for these processes, with the warnings and the journal lines."""
    said: list[Any] = []
    lines: list[Any] = []
    options = {"rss": 50 * MIB, "action": action}
    return LimitGuard(options, lambda _: list(pids), said.append, lambda *line: lines.append(line)), said, lines


def test_warns_once() -> None:
    """Exceeding the limit gives one warning and one line; at the limit and unknown are not above."""
    guard, said, lines = limit("warn")
    for at_s, rss in enumerate((None, 50 * MIB, 51 * MIB, 99 * MIB)):
        guard.check(rss, at_s)

    assert said == ["RSS of 51.0 MiB at 2.000 s is above --max-memory 50.0 MiB"]
    assert lines == [("limit_reached", {"at_s": 2, "rss": 51 * MIB, "limit": 50 * MIB, "action": "warn"})]
    assert not guard.is_ending


@pytest.mark.process
@pytest.mark.parametrize("is_stubborn", [False, True])
def test_ends_the_command(tmp_path: Path, *, is_stubborn: bool) -> None:
    """With ``kill``, SIGTERM ends a process; one that ignores it gets SIGKILL after the grace period."""
    trap = "trap '' TERM;" if is_stubborn else ""
    with subprocess.Popen(["sh", "-c", f"{trap} : > {tmp_path}/ready; sleep {HANGING_S}; true"]) as process:
        until((tmp_path / "ready").exists, "the shell")
        guard, said, _ = limit("kill", process.pid)
        guard.check(51 * MIB, 1.0)
        left_s = guard.remaining_s(2.0)
        guard.enforce(0.99 + GRACE_S)
        if is_stubborn:
            assert process.poll() is None
            guard.enforce(1.0 + GRACE_S)
        status = process.wait(HANGING_S)

    assert left_s == GRACE_S - 1
    assert status == -(signal.SIGKILL if is_stubborn else signal.SIGTERM)
    assert said == [
        "RSS of 51.0 MiB at 1.000 s is above --max-memory 50.0 MiB: ending the command",
        *["1 of the processes still run 5 s after SIGTERM: sending SIGKILL"] * is_stubborn,
    ]
    assert guard.is_ending != is_stubborn
