from __future__ import annotations

import gzip
import importlib
import os
import select
import subprocess
import sys
import threading
from pathlib import Path
from unittest import mock

import pytest

from nncftools.errors import SessionFileError, UsageError
from nncftools.importers import IMPORTERS
from nncftools.importers.source import Source, read_session
from tests.conftest import HANGING_S
from tests.importers.logs import LOGS, MPROF, NNCF, imported
from tests.made_up import journal, session


@pytest.mark.parametrize("name", LOGS)
def test_every_log_is_recognised_by_its_own_importer_only(tmp_path: Path, name: str) -> None:
    """Each format is recognised by its importer and by no other."""
    (tmp_path / name).write_bytes(LOGS[name][0])
    with Source(tmp_path / name) as source:
        begin = name.encode() + b"\n" + source.head
        found = []
        for importer, place in IMPORTERS.items():
            module, _, log_class = place.partition(":")
            if getattr(importlib.import_module(module), log_class).head.match(begin):
                found.append(importer)

    assert found == [LOGS[name][1]]


@pytest.mark.parametrize("saved", ["session.json", "session.json.gz", "run.journal.jsonl"])
def test_our_own_files(tmp_path: Path, saved: str) -> None:
    """Sessions and journals are opened as before."""
    if "journal" in saved:
        (tmp_path / saved).write_bytes(journal([0.5, 4096]))
    else:
        session().save(tmp_path / saved)

    assert read_session(tmp_path / saved).command[0] == "work"


@pytest.mark.process
def test_our_own_files_load_no_importer(tmp_path: Path) -> None:
    """Opening one of our own sessions imports only the registry."""
    session().save(tmp_path / "session.json")
    program = (
        "import sys; from nncftools.importers.source import read_session; "
        "read_session(sys.argv[1]); print(*sys.modules)"
    )
    words = [sys.executable, "-c", program, str(tmp_path / "session.json")]
    loaded = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()
    ours = {name for name in loaded if name.startswith("nncftools.importers.")}

    assert ours == {"nncftools.importers.source"}


def test_gzipped(tmp_path: Path) -> None:
    """A gzipped log is read like a plain one, and its name counts without .gz."""
    found = imported(tmp_path, gzip.compress(NNCF), "system_memory_usage.txt.gz")

    assert found.samples.metrics == ["system"]
    assert found.warnings == []


@pytest.mark.parametrize("damage", ["cut off", "overwritten"])
def test_damaged_gzip(tmp_path: Path, damage: str) -> None:
    """The content before the damage in a gzipped log is kept, and a warning says where it is."""
    rows = b"".join(b"MEM %d.000000 %d.0000\n" % (place * 7919 % 997, 1424768150 + place) for place in range(30_000))
    packed = bytearray(gzip.compress(rows))
    if damage == "cut off":
        del packed[len(packed) // 2 :]
    else:
        packed[-8:-4] = b"\0\0\0\0"
    found = imported(tmp_path, bytes(packed), "mprof.dat.gz")

    assert 10_000 < len(found.samples) <= 30_000
    assert any("the gzip file is damaged or truncated" in warning for warning in found.warnings)


@pytest.mark.parametrize("name", ["mprof.dat", "psrecord.csv", "rss_memory_usage.txt"])
def test_windows_ends_of_lines_and_mark(tmp_path: Path, name: str) -> None:
    """CRLF and a byte order mark change nothing."""
    plain = imported(tmp_path, LOGS[name][0], name)
    windows = imported(tmp_path, b"\xef\xbb\xbf" + LOGS[name][0].replace(b"\n", b"\r\n"), name)

    assert windows.samples.time_s == plain.samples.time_s
    assert (windows.peaks, windows.warnings) == (plain.peaks, plain.warnings)


@pytest.mark.parametrize("text", [b"Hello \xe9\x1b[31m\nworld\n", b"\x7fELF\0\0\1\n", b"1,2,3\n", b"x" * 100_000])
def test_unrecognised_file(tmp_path: Path, text: bytes) -> None:
    """An unknown file is refused in one printable line with file and first line; naming the tool would help."""
    with pytest.raises(SessionFileError) as failed:
        imported(tmp_path, text)
    message = str(failed.value)

    assert message.startswith(f"{tmp_path / 'log'}: neither a session nor a log of a known recorder (line 1 is '")
    assert failed.value.remedy == "importer"
    assert message.isprintable()
    assert len(message) < 400


@pytest.mark.parametrize(
    "text, forced, expected",
    [
        (b"", None, "the file is empty"),
        (b"{}", None, "not a session of nncf-tools"),
        (MPROF.decode().encode("utf-16"), None, "log: UTF-16, UTF-8 expected$"),
        (MPROF, "psrecord", "log: nothing could be read as a log of psrecord: line 1: 'CMDLINE python"),
        (MPROF, "x", "^'x' is not one of mprof, psrecord, con-duct, nncf"),
    ],
    ids=["empty", "other JSON", "PowerShell's UTF-16", "forced wrongly", "forced by an unknown name"],
)
def test_refused(tmp_path: Path, text: bytes, forced: str | None, expected: str) -> None:
    """A file that cannot be read as a log, or as the forced kind of log, is refused with the reason."""
    with pytest.raises(UsageError if forced == "x" else SessionFileError, match=expected):
        imported(tmp_path, text, forced=forced)


def test_folders_and_devices_are_refused(tmp_path: Path) -> None:
    """Only a file or a FIFO can be a log."""
    for path in (tmp_path, Path(os.devnull)):
        with pytest.raises(SessionFileError, match="a file expected"):
            read_session(path)
    with pytest.raises(SessionFileError, match="No such file"):
        read_session(tmp_path / "missing")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFO on this system")
@pytest.mark.parametrize(
    "text",
    [MPROF, gzip.compress(MPROF), journal([0.5, 4096]), b""],
    ids=["plain", "gzipped", "journal", "empty"],  # what gzip writes holds the time
)
def test_fifo(tmp_path: Path, text: bytes) -> None:
    """A log or session can come through a FIFO."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(text,), daemon=True)
    writer.start()
    try:
        if text:
            assert len(read_session(path).samples) > 0
        else:
            with pytest.raises(SessionFileError, match="the file is empty"):
                read_session(path)
    finally:
        writer.join(HANGING_S)


def test_fifo_that_is_written_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer may open, write and close the FIFO between a read and the look whether a writer has closed it."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    poll = select.poll()
    looks = mock.Mock(wraps=poll)

    def write_first(timeout: int) -> list[tuple[int, int]]:
        looks.poll.side_effect = None
        path.write_bytes(MPROF)
        return poll.poll(timeout)

    looks.poll.side_effect = write_first
    monkeypatch.setattr(select, "poll", lambda: looks)

    assert len(read_session(path).samples) > 0


def test_progress(tmp_path: Path) -> None:
    """The progress callback gets how much of the file was read."""
    calls: list[tuple[int, int | None]] = []
    (tmp_path / "log").write_bytes(MPROF)
    read_session(tmp_path / "log", progress=lambda read, of: calls.append((read, of)))

    assert calls[-1] == (len(MPROF), len(MPROF))
