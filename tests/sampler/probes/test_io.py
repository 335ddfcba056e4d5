from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from nncftools.sampler.probes.process import Io
from tests.sampler.fake_proc import IO, FakeProc, locking, vanish

UNKNOWN = (None, None, None, None)
LARGEST = 2**64 - 1


def test_sums(proc: FakeProc) -> None:
    """Bytes are summed over the tree: read and written by storage, then by system calls."""
    proc.add(1, io=(1, 2, 3, 4))
    proc.add(2, io=(10, 20, 30, 40))

    assert Io(1).read([proc.process(1), proc.process(2)]) == (33, 44, 11, 22)


def test_huge_values(proc: FakeProc) -> None:
    """Counters that fill 64 bits are read whole."""
    (proc.root / "1/io").write_text(IO.replace(" 1\n", f" {LARGEST}\n").format(*[LARGEST] * 4))

    assert Io(1).read([proc.process()]) == (LARGEST,) * 4


def test_locked_file_is_unknown(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    """I/O that one process of the tree does not let us read is unknown, not less."""
    proc.add(2, io=(1, 2, 3, 4))
    monkeypatch.setattr(os, "open", locking("io"))
    locked = proc.process(1)
    monkeypatch.undo()

    assert Io(1).read([locked, proc.process(2)]) == UNKNOWN


@pytest.mark.process
@pytest.mark.skipif(os.getuid() != 0, reason="gives a file to another user, which only root may")
def test_file_of_another_user_is_unknown(tmp_path: pathlib.Path) -> None:
    """What the kernel locks is unknown."""
    script = (
        "import os, sys; sys.path.insert(0, sys.argv[1])\n"
        "from nncftools.sampler.probes.process import Io\nfrom nncftools.sampler.tree import Allowance, Process\n"
        "os.setuid(65534)\n"
        "print(Io(0).read([Process('/proc', int(sys.argv[2]), None, 0, ('io',), allowance=Allowance())]))"
    )
    here = str(pathlib.Path(__file__).parents[3])
    words = [sys.executable, "-c", script, here, str(os.getpid())]
    shown = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)

    assert shown.stdout == "(None, None, None, None)\n"


@pytest.mark.process
def test_process_that_vanished(proc: FakeProc) -> None:
    """A process that was reaped between scan and read adds nothing and is marked; the others are read."""
    proc.add(1, io=(1, 2, 3, 4))
    proc.add(2, io=(10, 20, 30, 40))
    processes = [proc.process(1), proc.process(2)]
    vanish(processes[0])

    assert Io(1).read(processes) == (30, 40, 10, 20)
    assert [process.alive for process in processes] == [False, True]


def test_process_that_another_probe_found_gone(proc: FakeProc) -> None:
    """A process that is known to be gone is not read: its figures are in its parent's by now."""
    proc.add(1, io=(1, 2, 3, 4))
    process = proc.process()
    process.alive = False

    assert Io(1).read([process]) == (0, 0, 0, 0)


def test_retired_children_are_kept(proc: FakeProc) -> None:
    """The bytes of children of ours that have ended stay in the sums."""
    proc.add(1, io=(1, 2, 3, 4))
    proc.add(2, io=(10, 20, 30, 40))
    io = Io(1)
    io.retire(proc.process(1))
    io.retire(proc.process(2))

    assert io.read([]) == (33, 44, 11, 22)


def test_locked_child_that_has_ended_stays_unknown(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a child of ours ends whose I/O could not be read, the totals are unknown: they lack its bytes."""
    monkeypatch.setattr(os, "open", locking("io"))
    locked = proc.process()
    monkeypatch.undo()
    io = Io(1)
    io.retire(locked)

    assert io.read([]) == UNKNOWN


def test_unknown_for_good(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another child leaves behind later does not make the totals known again."""
    proc.add(2, io=(10, 20, 30, 40))
    monkeypatch.setattr(os, "open", locking("io"))
    locked = proc.process()
    monkeypatch.undo()
    io = Io(1)
    io.retire(locked)
    io.retire(proc.process(2))

    assert io.read([proc.process(2)]) == UNKNOWN
