from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nncftools.errors import SessionFileError
from nncftools.journal import reading
from nncftools.journal.reading import FORMAT, VERSION, Header
from nncftools.session.recording import Tail


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Return the name of a journal."""
    return tmp_path / "run.journal.jsonl"


@contextlib.contextmanager
def created(path: Path, *, replace: bool = False) -> Iterator[int]:
    """Create a journal, and close it at the end."""
    descriptor = reading.create(path, replace=replace)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class TestCreate:
    def test_private(self, journal: Path) -> None:
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
    def test_link(self, journal: Path, tmp_path: Path, replace: bool) -> None:  # noqa: FBT001 — a case
        """A link in its place is never followed, whether or not its target exists."""
        for target in (tmp_path / "victim", tmp_path / "missing"):
            (tmp_path / "victim").write_text("mine")
            journal.unlink(missing_ok=True)
            journal.symlink_to(target)
            with pytest.raises(OSError, match=r"exists|links"):
                reading.create(journal, replace=replace)
            assert (tmp_path / "victim").read_text() == "mine"
            assert not (tmp_path / "missing").exists()

    @pytest.mark.parametrize("make", [os.mkfifo, Path.touch], ids=["FIFO", "file"])
    def test_exists(self, journal: Path, make: Callable[[Path], None]) -> None:
        """An existing file is kept unless replacing is allowed; a FIFO does not block."""
        make(journal)
        with pytest.raises(FileExistsError):
            reading.create(journal, replace=False)
        with created(journal, replace=True):
            assert journal.is_file()
        journal.unlink()
        journal.mkdir()  # a folder is not removed
        with pytest.raises(OSError, match="directory"):
            reading.create(journal, replace=True)

    def test_busy(self, journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The journal of a running recording is not taken over; that of an ended one is."""
        monkeypatch.setattr(reading, "_PAUSE_S", 0.0)
        with created(journal) as held:
            os.write(held, b"kept")
            with pytest.raises(reading.BusyError):
                reading.create(journal, replace=True)
            assert journal.read_text() == "kept"
        with reading.reader(journal) as own:
            reading.lock(own.fileno())  # by a reader at the end of the journal
            with pytest.raises(reading.BusyError):
                reading.create(journal, replace=True)
        with created(journal, replace=True):
            assert journal.read_text() == ""


class TestLock:
    def test_lasts_until_the_last_descriptor_is_closed(self, journal: Path) -> None:
        """The lock lasts until the last copy of its descriptor is closed, and only another description sees it."""
        with created(journal) as descriptor:
            handed = os.dup(descriptor)
            with reading.reader(journal) as own:
                assert reading.is_locked(own.fileno())
        assert reading.is_recording(journal)
        os.close(handed)
        with reading.reader(journal) as own:
            assert not reading.is_locked(own.fileno())
            with created(journal, replace=True):  # the check leaves no lock behind
                assert reading.is_recording(journal)


class TestReader:
    @pytest.mark.parametrize("swap", [Path.touch, os.mkfifo, Path.mkdir, str])
    def test_of_a_descriptor(self, journal: Path, swap: Callable[[Path], object]) -> None:
        """With a descriptor, its very file is read, even under another name, through a new description."""
        with created(journal) as descriptor:
            os.write(descriptor, b"ours")
            journal.unlink()
            swap(journal)
            with reading.reader(journal, descriptor) as own:
                assert own.read() == b"ours"
                assert reading.is_locked(own.fileno())

    @pytest.mark.parametrize("kind", ["missing", "folder", "fifo"])
    def test_what_is_no_file(self, journal: Path, kind: str) -> None:
        """Anything but a file is refused at once, and has no recording."""
        if kind == "folder":
            journal.mkdir()
        elif kind == "fifo":
            os.mkfifo(journal)
        assert not reading.is_recording(journal)
        with pytest.raises(OSError, match=r"a file expected|No such file"):
            reading.reader(journal)


class TestRemove:
    def test_of_others(self, journal: Path, tmp_path: Path) -> None:
        """The holder removes its own file only: a replacement by others is kept, also a link back to the file."""
        with created(journal) as descriptor:
            journal.rename(tmp_path / "moved")
            journal.symlink_to("moved")
            reading.remove(journal, descriptor)
            assert journal.is_symlink()
            journal.unlink()
            journal.write_text("theirs")
            reading.remove(journal, descriptor)
        assert journal.read_text() == "theirs"
        with created(journal, replace=True) as descriptor:
            for _ in range(2):
                reading.remove(journal, descriptor)
        assert not journal.exists()


PLAN = {"columns": ["rss", "processes"], "interval_s": 0.1, "source": "proc"}
HEADER = {"format": FORMAT, "version": VERSION, "host": {}, "plan": PLAN}


class Journal:
    """A journal that is written while it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.append(json.dumps(HEADER) + "\n")
        self.file = path.open("rb", buffering=0)
        self.tail = Tail(self.file, "run")

    def append(self, text: str | bytes) -> None:
        """Append raw text."""
        with self.path.open("ab") as file:
            file.write(text if isinstance(text, bytes) else text.encode())

    def samples(self) -> list[list[float | None]]:
        """Return the samples since the last read."""
        return [sample for chunk in self.tail.read() for sample in chunk.samples]

    def bad(self) -> list[int]:
        """Return the numbers of the unreadable lines since the last read."""
        return [number for chunk in self.tail.read() for number in chunk.bad]


@pytest.fixture
def tail_journal(tmp_path: Path) -> Iterator[Journal]:
    """Make a journal with a header."""
    made = Journal(tmp_path / "run.journal.jsonl")
    yield made
    made.file.close()


class TestGrowing:
    def test_taken_back(self, tail_journal: Journal) -> None:
        """The beginning of a line that its writer truncates is dropped."""
        tail_journal.append("[0,1,2]\n[1,3")
        assert tail_journal.samples() == [[0, 1, 2]]
        with tail_journal.path.open("rb+") as file:
            file.truncate(tail_journal.path.stat().st_size - len("[1,3"))
        tail_journal.append("[9,9,9]\n")
        assert tail_journal.samples() == [[9, 9, 9]]


class TestLongLines:
    def test_longest(self, tail_journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
        """A line longer than one chunk is read whole; an extremely long one is left out and counted."""
        monkeypatch.setattr(reading, "_CHUNK", 16)
        monkeypatch.setattr(reading, "_LONGEST_LINE", 64)
        tail_journal.append(b"[0,1,2]\n" + b"\0" * 1000 + b'\n[1,3,4]\n{"warning":"longer than a chunk"}\n')
        chunks = list(tail_journal.tail.read())
        assert [sample[0] for chunk in chunks for sample in chunk.samples] == [0, 1]
        assert [number for chunk in chunks for number in chunk.bad] == [3]
        assert [line for chunk in chunks for line in chunk.lines] == [{"warning": "longer than a chunk"}]


class TestHeader:
    def opened(self, tmp_path: Path, first: object, given: Header | None = None) -> Tail:
        """Open a journal with this first line."""
        path = tmp_path / "run.journal.jsonl"
        path.write_text((first if isinstance(first, str) else json.dumps(first)) + "\n[0,1,2]\n")
        with path.open("rb", buffering=0) as file:
            found = Tail(file, "run", given)
            self.samples = [sample for chunk in found.read() for sample in chunk.samples]
        return found

    def test_other_versions(self, tmp_path: Path) -> None:
        """Unknown keys of an old journal's plan are dropped; a journal of a later version asks for an upgrade."""
        older = {"argv": ["touch", "ran"], "signal_mask": [2], "channel": 3, "max_samples": 7, "redact": None}
        found = self.opened(tmp_path, HEADER | {"plan": PLAN | older, "unknown": 1})
        assert found.plan.columns == ["rss", "processes"]
        assert found.plan.max_samples == 7
        assert not set(found.plan.fields()) & {"argv", "signal_mask", "channel"}
        assert self.samples == [[0, 1, 2]]
        with pytest.raises(SessionFileError, match=r"journal version 99, .* upgrade"):
            self.opened(tmp_path, HEADER | {"version": 99})

    @pytest.mark.parametrize(
        "first",
        [
            "",
            "nonsense",
            "[]",
            {},
            HEADER | {"format": "other"},
            HEADER | {"plan": {}},
            HEADER | {"plan": PLAN | {"interval_s": 0}},
            HEADER | {"plan": PLAN | {"interval_s": "1"}},
            HEADER | {"plan": PLAN | {"columns": ["rss", "rss"]}},
            HEADER | {"version": "1"},
            HEADER | {"plan": PLAN | {"redact": ["("]}},
            {key: value for key, value in HEADER.items() if key != "plan"},
        ],
    )
    def test_wrong(self, tmp_path: Path, first: object) -> None:
        """A first line that is not a header is refused with the file name."""
        with pytest.raises(SessionFileError, match="run: line 1 is not the header of a journal"):
            self.opened(tmp_path, first)
