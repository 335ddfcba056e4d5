from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from nncftools.testing import meter
from tests.conftest import HANGING_S
from tests.made_up import MIB

RESET = """
from nncftools.testing import meter
held = bytearray(b"x") * (64 << 20)
del held
before = meter.memory(None)
worked = meter.reset_mark()
after = meter.memory(None)
print(worked, before.mark - after.mark >> 20, after.mark - after.rss >> 20)
"""

CHILDREN = """
import subprocess
from nncftools.testing import meter
before = meter.memory(None).has_children
with subprocess.Popen(["sleep", "100"]) as child:
    found = meter.memory(None).has_children, meter.memory(child.pid).has_children
    child.kill()
print(before, *found, meter.memory(None).has_children)
"""

if sys.platform != "linux":
    pytest.skip("what Linux tells", allow_module_level=True)


def output_of(program: str) -> list[str]:
    """Return the words that a program prints in a separate process."""
    words = [sys.executable, "-c", program]
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=HANGING_S).stdout.split()


@pytest.mark.process
def test_mark_begins_anew() -> None:
    """After a reset the kernel's high-water mark is the current RSS."""
    told = output_of(RESET)

    assert told[0] == "True"
    assert 62 <= int(told[1]) <= 66
    assert 0 <= int(told[2]) <= 2


def test_no_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the mark cannot be reset, the return value says so."""
    monkeypatch.setattr(meter, "_CLEAR_REFS", "/proc/self/no_such_file")

    assert not meter.reset_mark()


@pytest.mark.process
def test_children() -> None:
    """A running child counts unless it is excluded; one that was waited for does not."""
    assert output_of(CHILDREN) == ["False", "True", "False", "False"]


def test_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without /proc this process's memory is unknown."""
    monkeypatch.setattr(meter, "_STATUS", "/proc/self/no_such_file")
    found = meter.memory(None)

    assert (found.rss, found.mark) == (None, None)


def test_figures() -> None:
    """RSS and marks are in bytes."""
    found = meter.memory(None)

    assert found.mark is not None
    assert found.rss is not None
    assert MIB < found.rss <= found.mark + MIB
    assert found.children_mark == resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
