from __future__ import annotations

import pytest

from nncftools.sampler.probes.machine import Meminfo
from tests.sampler.fake_proc import KIB, MEMINFO, FakeProc

LARGEST_KIB = 2**54 - 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(MEMINFO, 600 * KIB, id="total less available"),
        pytest.param(MEMINFO.replace("MemAvailable:    400 kB\n", ""), None, id="a kernel before 3.14"),
        pytest.param(
            MEMINFO.replace(" 1000", f" {LARGEST_KIB}"), (LARGEST_KIB - 400) * KIB, id="as much as there can be"
        ),
    ],
)
def test_system(proc: FakeProc, text: str, expected: int | None) -> None:
    """SYSTEM is total minus available, in bytes; unknown on a kernel without MemAvailable."""
    (proc.root / "meminfo").write_text(text)

    assert Meminfo(str(proc.root), 1).read() == (expected,)


def test_follows_the_file(proc: FakeProc) -> None:
    """The file is opened once and read again each time."""
    (proc.root / "meminfo").write_text(MEMINFO)
    meminfo = Meminfo(str(proc.root), 1)
    before = meminfo.read()
    (proc.root / "meminfo").write_text(MEMINFO.replace("400", "100"))

    assert (before, meminfo.read()) == ((600 * KIB,), (900 * KIB,))


def test_this_machine() -> None:
    """On a real machine some memory is in use, and not all of it."""
    with open("/proc/meminfo", encoding="ascii") as file:  # noqa: PTH123 — the kernel's file
        total = int(file.readline().split()[1]) * KIB
    (used,) = Meminfo("/proc", 1).read()

    assert used is not None
    assert 0 < used < total
