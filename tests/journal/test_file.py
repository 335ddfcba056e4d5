from __future__ import annotations

import contextlib
import os
import pathlib
import stat
from collections.abc import Callable, Iterator

import pytest

from nncftools.journal import reading


@pytest.fixture
def journal(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return the name of a journal."""
    return tmp_path / "run.journal.jsonl"


@contextlib.contextmanager
def created(path: pathlib.Path, *, replace: bool = False) -> Iterator[int]:
    """Create a journal, and close it at the end."""
    descriptor = reading.create(path, replace=replace)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class TestCreate:
    def test_private(self, journal: pathlib.Path) -> None:
        """A journal is private to its owner under any umask, and is opened for appending."""
        before = os.umask(0)
        try:
            with created(journal) as descriptor:
                assert stat.S_IMODE(journal.stat().st_mode) == 0o600
                os.write(descriptor, b"one\n")
                os.lseek(descriptor, 0, os.SEEK_SET)
                os.write(descriptor, b"two\n")
        finally:
            os.umask(before)
        assert journal.read_text() == "one\ntwo\n"

    @pytest.mark.parametrize("replace", [False, True])
    def test_link(self, journal: pathlib.Path, tmp_path: pathlib.Path, replace: bool) -> None:  # noqa: FBT001 — a case
        """A link in its place is never followed, whether or not its target exists."""
        for target in (tmp_path / "victim", tmp_path / "missing"):
            (tmp_path / "victim").write_text("mine")
            journal.unlink(missing_ok=True)
            journal.symlink_to(target)
            with pytest.raises(OSError, match=r"exists|links"):
                reading.create(journal, replace=replace)
            assert (tmp_path / "victim").read_text() == "mine"
            assert not (tmp_path / "missing").exists()

    def test_exists(self, journal: pathlib.Path) -> None:
        """An existing file is kept unless replacing is allowed."""
        journal.write_text("old")
        with pytest.raises(FileExistsError):
            reading.create(journal, replace=False)
        assert journal.read_text() == "old"
        with created(journal, replace=True):
            assert journal.read_text() == ""

    def test_fifo(self, journal: pathlib.Path) -> None:
        """A FIFO in its place does not block."""
        os.mkfifo(journal)
        with pytest.raises(FileExistsError):
            reading.create(journal, replace=False)
        with created(journal, replace=True):
            assert journal.is_file()

    def test_folder(self, journal: pathlib.Path) -> None:
        """A folder in its place is not removed."""
        journal.mkdir()
        with pytest.raises(OSError, match="directory"):
            reading.create(journal, replace=True)
        assert journal.is_dir()

    def test_busy(self, journal: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The journal of a running recording is not taken over; that of an ended one is."""
        monkeypatch.setattr(reading, "_PAUSE_S", 0.0)
        with created(journal) as held:
            os.write(held, b"kept")
            with pytest.raises(reading.BusyError):
                reading.create(journal, replace=True)
            assert journal.read_text() == "kept"
        with created(journal, replace=True):
            assert journal.read_text() == ""


class TestLock:
    def test_lasts_until_the_last_descriptor_is_closed(self, journal: pathlib.Path) -> None:
        """The lock lasts until the last copy of its descriptor is closed, and only another description sees it."""
        with created(journal) as descriptor:
            handed = os.dup(descriptor)
            with reading.reader(journal) as own:
                assert reading.is_held(own.fileno())
        assert reading.is_recording(journal)
        os.close(handed)
        assert not reading.is_recording(journal)

    def test_reader_does_not_take_it(self, journal: pathlib.Path) -> None:
        """Checking for a recording leaves no lock behind."""
        with created(journal):
            pass
        with reading.reader(journal) as own:
            assert not reading.is_held(own.fileno())
            with created(journal, replace=True):
                assert reading.is_recording(journal)

    def test_hold(self, journal: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A reader at the end of a journal can prevent others from taking it over."""
        monkeypatch.setattr(reading, "_PAUSE_S", 0.0)
        with created(journal):
            pass
        with reading.reader(journal) as own:
            reading.hold(own.fileno())
            with pytest.raises(reading.BusyError):
                reading.create(journal, replace=True)

    @pytest.mark.parametrize("kind", ["missing", "folder", "fifo"])
    def test_what_is_no_file(self, journal: pathlib.Path, kind: str) -> None:
        """Anything but a file has no recording."""
        if kind == "folder":
            journal.mkdir()
        elif kind == "fifo":
            os.mkfifo(journal)
        assert not reading.is_recording(journal)


class TestReader:
    @pytest.mark.parametrize("swap", [pathlib.Path.touch, os.mkfifo, pathlib.Path.mkdir, str])
    def test_of_a_descriptor(self, journal: pathlib.Path, swap: Callable[[pathlib.Path], object]) -> None:
        """With a descriptor, its very file is read, even under another name, through a new description."""
        with created(journal) as descriptor:
            os.write(descriptor, b"ours")
            journal.unlink()
            swap(journal)
            with reading.reader(journal, descriptor) as own:
                assert own.read() == b"ours"
                assert reading.is_held(own.fileno())

    @pytest.mark.parametrize("kind", ["folder", "fifo"])
    def test_what_is_no_file(self, journal: pathlib.Path, kind: str) -> None:
        """Anything but a file is refused at once."""
        if kind == "folder":
            journal.mkdir()
        else:
            os.mkfifo(journal)
        with pytest.raises(OSError, match="a file expected"):
            reading.reader(journal)


class TestRemove:
    def test_own(self, journal: pathlib.Path) -> None:
        """The holder removes the file; repeated calls are harmless."""
        with created(journal) as descriptor:
            reading.remove(journal, descriptor)
            reading.remove(journal, descriptor)
        assert not journal.exists()

    def test_of_others(self, journal: pathlib.Path, tmp_path: pathlib.Path) -> None:
        """A replacement by others is kept, also a link back to the file."""
        with created(journal) as descriptor:
            journal.rename(tmp_path / "moved")
            journal.symlink_to("moved")
            reading.remove(journal, descriptor)
            assert journal.is_symlink()
            journal.unlink()
            journal.write_text("theirs")
            reading.remove(journal, descriptor)
        assert journal.read_text() == "theirs"
