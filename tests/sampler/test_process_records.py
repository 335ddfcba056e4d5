from __future__ import annotations

import os
import subprocess
import sys

import pytest

from nncftools.sampler.process_records import find_barriers
from nncftools.sampler.tree import Common, Process


@pytest.mark.process
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize(
    "change, expected",
    [("os.setuid(65534)", ["user"]), ("os.chroot('/tmp')", ["root"]), ("pass", [])],
)
def test_another_user_or_root(change: str, expected: list[str]) -> None:
    """Another user or root folder keeps a process from the log; what is unknown does not."""
    program = f"import os; {change}; os.write(1, b'ready'); os.read(0, 1)"
    words = [sys.executable, "-c", program]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.read(5) == b"ready"
        process = Process("/proc", child.pid, None, 0, files=(), common=Common())

        assert find_barriers(process) == expected
        child.kill()
