"""Losses of a recording are reported, and are limited to what was really lost."""

from __future__ import annotations

import contextlib
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nncftools import Session
from nncftools.render.sentences import hints
from nncftools.units import MemoryUnit
from tests.trust.recorder import JOURNAL, Recorder, changed_package
from tests.waiting import until

pytestmark = [pytest.mark.process, pytest.mark.long]


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    """Record a command that lives until it is released; like ``full_disk``, write no compiled modules."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    with (tmp_path / "errors").open("w") as errors:
        recorder = Recorder(tmp_path, stderr=errors)
    yield recorder
    recorder.go()
    recorder.process.kill()
    recorder.process.wait()


@contextlib.contextmanager
def failing_writes(recorder: Recorder) -> Iterator[None]:
    """Make each write of the sampler to the journal fail, then work again."""
    size = (recorder.folder / JOURNAL).stat().st_size
    before = resource.prlimit(recorder.sampler, resource.RLIMIT_FSIZE)
    resource.prlimit(recorder.sampler, resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(recorder.sampler, resource.RLIMIT_FSIZE, before)


def wake_ups(pid: int) -> int:
    """Return how often a process has slept so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def is_whole(session: Session) -> bool:
    """Return whether a finished recording has every sample that was taken, and no warning."""
    return session.finished and session.warnings == [] and len(session.samples) == session.sampler.taken


class TestFailingWrites:
    def test_for_long(self, tmp_path: Path) -> None:
        """Samples lost because too much waits for the disk are missed, a gap, and one warning."""
        change = "from nncftools.journal import writing; writing.MAX_KEPT = 100"
        environment = changed_package(tmp_path / "changed", change)
        recorder = Recorder(tmp_path, stderr=subprocess.DEVNULL, env=environment)
        with failing_writes(recorder):
            wakes = wake_ups(recorder.sampler)
            until(lambda: wake_ups(recorder.sampler) > wakes + 20, "ticks")
        recorder.until_sampled()
        status, session = recorder.status(), recorder.session()
        (warning,) = session.warnings
        lost = int(warning.split()[-4])
        facts = session.sampler

        assert (status, session.finished, facts.taken) == (9, True, len(session.samples))
        assert warning == f"the journal could not be written for a while (File too large): {lost} samples are lost"
        assert (facts.missed or 0) >= lost > 5
        assert (facts.longest_gap_s or 0) >= lost * (facts.interval_s or 1)
        assert hints(session, MemoryUnit.MiB) == [warning]

    def test_to_the_end(self, recorder: Recorder) -> None:
        """Lines that the sampler could not write by the end are in the session: they were in the CLI's memory."""
        with failing_writes(recorder):
            until((recorder.folder / "errors").read_text, "the complaint")
            status = recorder.status()

        assert status == 9
        assert is_whole(recorder.session())
