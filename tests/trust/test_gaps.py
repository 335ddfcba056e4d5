"""Losses of a recording are reported, and are limited to what was really lost."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import resource
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from nncftools import Session
from nncftools.render.sentences import hints
from nncftools.units import MemoryUnit
from tests.conftest import HANGING_S, burner, command_line
from tests.trust.recorder import JOURNAL, SESSION, Recorder, changed_package, state_of
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


class Outcome:
    """The outcome of a recording on a full disk."""

    def __init__(self, folder: pathlib.Path, *words: object) -> None:
        self.kept, errors = folder / "kept", folder / "errors"
        for made in (folder / "disk", self.kept):
            made.mkdir()
        command = burner("fills", "disk/filler", errors, *words)
        record = command_line("monitor", "-q", "-i", INTERVAL_S, "-o", "disk/run.json", "--", *command)
        with errors.open("w") as stderr:
            shell = ["unshare", "-m", "sh", "-c", ON_SMALL_DISK, "sh", "disk", *record]
            self.status = subprocess.run(shell, cwd=folder, stderr=stderr, timeout=HANGING_S, check=False).returncode
        self.stderr = errors.read_text()


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


def interval_of(session: Session) -> float:
    """Return the planned interval of two samples."""
    assert session.sampler.interval_s is not None
    return session.sampler.interval_s


def is_whole(session: Session) -> bool:
    """Return whether a finished recording has every sample that was taken, and no warning."""
    return session.finished and session.warnings == [] and len(session.samples) == session.sampler.taken


@pytest.mark.usefixtures("mounts")
class TestFullDisk:
    def test_for_a_while(self, tmp_path: pathlib.Path) -> None:
        """A full disk that gets free space again loses no sample; the user is notified once."""
        outcome = Outcome(tmp_path)
        session = Session.load(outcome.kept / "run.json")

        assert (outcome.status, outcome.stderr) == (7, NO_SPACE)
        assert is_whole(session)
        assert session.peaks["rss"].low is not None
        assert session.peaks["rss"].low > 50 * MIB

    def test_to_the_end(self, tmp_path: pathlib.Path) -> None:
        """A disk that stays full loses no sample either: the session is saved elsewhere, and one line says where.

        The part of the journal on the disk stays there, unfinished, without a partial line.
        """
        outcome = Outcome(tmp_path, "stays")
        found = re.fullmatch(
            f"{re.escape(NO_SPACE)}nncf-tools: error: the session could not be written to "
            r"\S*/disk/run.json \(No space left on device\); it is (\S+)\n",
            outcome.stderr,
        )

        assert found, outcome.stderr
        elsewhere = pathlib.Path(found[1])
        session = Session.load(elsewhere)
        elsewhere.unlink()
        elsewhere.parent.rmdir()
        journal = Session.load(outcome.kept / "run.journal.jsonl")
        assert outcome.status == 7
        assert session.warnings == ["the file system of the marks log is full: marks may be missing"]
        assert (session.finished, len(session.samples)) == (True, session.sampler.taken)
        assert not journal.finished
        assert 0 < len(journal.samples) < len(session.samples)
        assert [text.partition(":")[0] for text in journal.warnings] == ["unfinished"]
        assert session.exit is not None
        assert session.exit.code == 7
        assert session.peaks["rss"].low is not None
        assert session.peaks["rss"].low > 50 * MIB


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
        facts = session.sampler
        assert len(session.warnings) == 1, session.warnings
        (warning,) = session.warnings
        lost = int(warning.split()[-4])

        assert status == 9
        assert warning == f"the journal could not be written for a while (File too large): {lost} samples are lost"
        assert lost > 5
        assert (facts.taken, session.finished) == (len(session.samples), True)
        assert facts.missed is not None
        assert facts.missed >= lost
        assert facts.longest_gap_s is not None
        assert facts.longest_gap_s >= lost * interval_of(session)
        assert hints(session, MemoryUnit.MiB) == [warning]

    def test_to_the_end(self, recorder: Recorder) -> None:
        """Lines that the sampler could not write by the end are in the session: they were in the CLI's memory."""
        with failing_writes(recorder):
            until((recorder.folder / "errors").read_text, "the complaint")
            status = recorder.status()

        assert status == 9
        assert is_whole(recorder.session())

    def test_journal_that_is_cut(self, recorder: Recorder) -> None:
        """Samples removed from the journal are missing, not merged; status and the rest are kept."""
        recorder.until_sampled()
        journal = recorder.folder / JOURNAL
        data = journal.read_bytes()
        os.truncate(journal, data.index(b"\n[") + 1)
        recorder.until_sampled()
        recorder.go()
        status, session = recorder.status(), recorder.session()

        assert (status, session.finished) == (9, True)
        assert [re.sub(r"^\d+", "N", text) for text in session.warnings] == [
            "N samples are missing from the journal, which was cut during the recording"
        ]


class TestStoppedSampler:
    def test_until_after_the_end(self, recorder: Recorder) -> None:
        """If the sampler is stopped until after the command's end, the missed ticks and their gap are counted."""
        os.kill(recorder.sampler, signal.SIGSTOP)
        until(lambda: state_of(recorder.sampler) == "T", "the sampler's stop")
        begin_s = time.monotonic()
        recorder.go()
        until(lambda: state_of(recorder.command) == "Z", "the end of the command")
        until(lambda: time.monotonic() > begin_s + 0.5, "deadlines to pass")
        missed_s = time.monotonic() - begin_s
        os.kill(recorder.sampler, signal.SIGCONT)

        assert recorder.status() == 9
        session = recorder.session()
        facts = session.sampler
        assert facts.missed is not None
        assert facts.missed >= int(missed_s / interval_of(session)) - 1
        assert facts.longest_gap_s is not None
        assert facts.longest_gap_s >= missed_s

    def test_in_the_midst(self, recorder: Recorder) -> None:
        """A sampler that is stopped and continued has missed only the samples in between."""
        os.kill(recorder.sampler, signal.SIGSTOP)
        until(lambda: state_of(recorder.sampler) == "T", "the sampler's stop")
        begin_s = time.monotonic()
        until(lambda: time.monotonic() > begin_s + 0.5, "deadlines to pass")
        os.kill(recorder.sampler, signal.SIGCONT)
        recorder.until_sampled()
        recorder.go()

        assert recorder.status() == 9
        session = recorder.session()
        assert session.sampler.missed is not None
        assert session.sampler.missed >= int(0.5 / interval_of(session)) - 1
        assert session.sampler.missed + len(session.samples) <= session.duration_s / interval_of(session) + 1

    def test_not_stopped(self, tmp_path: pathlib.Path) -> None:
        """A command that ends between two deadlines has no gap."""
        words = command_line("monitor", "-q", "-i", 10, "-o", SESSION, "--", *burner("touch", 1, 0))
        subprocess.run(words, cwd=tmp_path, timeout=HANGING_S, check=True)
        facts = Session.load(tmp_path / SESSION).sampler

        assert (facts.taken, facts.missed, facts.longest_gap_s) == (1, 0, None)
