"""Losses of a recording are reported, and are limited to what was really lost."""

from __future__ import annotations

import contextlib
import pathlib
import re
import resource
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from nncftools import Session
from nncftools.render.sentences import hints
from nncftools.units import MemoryUnit
from tests.conftest import HANGING_S, burner, command_line
from tests.trust.recorder import JOURNAL, Recorder, changed_package
from tests.waiting import until

pytestmark = [pytest.mark.process, pytest.mark.long]

MIB = 2**20
CANNOT = "nncf-tools: the journal cannot be written: {}; trying again\n"
NO_SPACE = CANNOT.format("No space left on device")
TOO_LARGE = CANNOT.format("File too large")
ON_SMALL_DISK = (
    'mount -t tmpfs -o size=192k tmpfs "$1" || exit 99; shift; "$@"; status=$?; cp -r disk/. kept; exit $status'
)
"""In a shell with its own mounts: run a command, and keep its files on a separate disk."""
INTERVAL_S = 0.01


@pytest.fixture
def mounts() -> None:
    """Skip a test where no disk can be mounted."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("only root can mount a small disk")


@pytest.fixture
def recorder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
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
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def is_whole(session: Session) -> bool:
    """Return whether a finished recording has every sample that was taken, and no warning."""
    return session.finished and session.warnings == [] and len(session.samples) == session.sampler.taken


@pytest.mark.usefixtures("mounts")
class TestFullDisk:
    def test_to_the_end(self, tmp_path: pathlib.Path) -> None:
        """A disk that stays full loses no sample: the session is saved elsewhere, and one line says where.

        The part of the journal on the disk stays there, unfinished, without a partial line.
        """
        for name in ("disk", "kept"):
            (tmp_path / name).mkdir()
        command = burner("fills", "disk/filler", tmp_path / "errors", "stays")
        record = command_line("monitor", "-q", "-i", INTERVAL_S, "-o", "disk/run.json", "--", *command)
        with (tmp_path / "errors").open("w") as stderr:
            shell = ["unshare", "-m", "sh", "-c", ON_SMALL_DISK, "sh", "disk", *record]
            status = subprocess.run(shell, cwd=tmp_path, stderr=stderr, timeout=HANGING_S, check=False).returncode
        message = (
            f"{re.escape(NO_SPACE)}nncf-tools: error: the session could not be written to "
            r"\S*/disk/run.json \(No space left on device\); it is (\S+)\n"
        )
        found = re.fullmatch(message, (tmp_path / "errors").read_text())
        assert found
        session = Session.load(found[1])
        shutil.rmtree(pathlib.Path(found[1]).parent)
        journal = Session.load(tmp_path / "kept/run.journal.jsonl")

        assert status == 7
        assert session.warnings == ["the file system of the marks log is full: marks may be missing"]
        assert (session.finished, len(session.samples)) == (True, session.sampler.taken)
        assert not journal.finished
        assert 0 < len(journal.samples) < len(session.samples)
        assert (session.peaks["rss"].low or 0) > 50 * MIB


class TestFailingWrites:
    def test_for_a_while(self, recorder: Recorder) -> None:
        """Temporary write errors of the sampler lose no sample, also where nothing can be mounted."""
        with failing_writes(recorder):
            until((recorder.folder / "errors").read_text, "the complaint")
        recorder.until_sampled()

        assert recorder.status() == 9
        assert (recorder.folder / "errors").read_text() == TOO_LARGE
        assert is_whole(recorder.session())

    def test_for_long(self, tmp_path: pathlib.Path) -> None:
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
