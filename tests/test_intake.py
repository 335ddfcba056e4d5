from __future__ import annotations

import gzip
import os
import re
import threading
import tracemalloc
from pathlib import Path

import msgspec
import pytest

from nncftools import intake
from nncftools.analysis.session import Session
from nncftools.errors import SessionFileError
from nncftools.importers.source import read_session
from nncftools.intake import LIMITS
from nncftools.session.model import Start
from tests.conftest import HANGING_S
from tests.importers.logs import LOGS
from tests.made_up import END, journal, session


@pytest.mark.parametrize(
    "text, message",
    [
        ("noon", "Invalid isoformat string: 'noon'"),
        ("2026-11-21T07:00:00", "a time with its zone expected"),
        ("0001-01-01T00:00:00+00:00", "a year from 1970 to 2286 expected"),
    ],
)
def test_moments(text: str, message: str) -> None:
    """A moment has its zone, and a year in which a clock can be."""
    with pytest.raises(ValueError, match=re.escape(message)):
        intake.moment(text)
    with pytest.raises(ValueError, match=re.escape(message)):
        Start(utc=text)


@pytest.mark.parametrize(
    "kind, beyond",
    [
        (intake.Whole, 2**63),
        (intake.Size, -1),
        (intake.Count, 1_000_001),
        (intake.Pid, 2**31),
        (intake.Figure, -1e19),
        (intake.Seconds, 1e11),
        (intake.Duration, -0.5),
    ],
)
def test_types_have_a_range(kind: object, beyond: float) -> None:
    """A decoder refuses what is out of the range of its type."""
    for value in (beyond, 10**400):
        with pytest.raises(msgspec.ValidationError, match=r"Expected `(int|float)` [<>]=|out of range"):
            msgspec.json.decode(f"{value}", type=kind)


@pytest.mark.parametrize(
    "text, is_one", [("1", True), ("2147483647", True), ("2147483648", False), ("9" * 20, False), ("-1", False)]
)
def test_pids(text: str, is_one: bool) -> None:  # noqa: FBT001 — a parameter of the test
    """A PID is a whole number that a kernel can give."""
    assert intake.is_pid(text) == is_one


MIB = 1 << 20


def test_a_bomb_is_refused_soon(tmp_path: Path) -> None:
    """A file that unpacks to a thousand times its size is refused early: gzip of Python 3.12 on reads 128 KiB ahead."""
    path = tmp_path / "bomb.json.gz"
    begin = gzip.compress(b'{"format": "nncf-tools-session", "name": "', mtime=0)
    path.write_bytes(begin + gzip.compress(bytes(MIB), mtime=0) * 3000)
    tracemalloc.start()
    try:
        with pytest.raises(SessionFileError, match="unpacks to more than 800 times the file size"):
            read_session(path)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert most < 700 * MIB


def test_files_that_pack_well_are_read(tmp_path: Path) -> None:
    """Up to 64 MiB, a file may unpack to any multiple of its size."""
    path = tmp_path / "zeros.gz"
    path.write_bytes(gzip.compress(bytes(20 * MIB), mtime=0))

    assert len(intake.read_file(path)) == 20 * MIB


@pytest.mark.parametrize("content", [bytes(2000), gzip.compress(bytes(2000), mtime=0)])
def test_size_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    """A file larger than the limit is refused, packed or not."""
    path = tmp_path / "long"
    path.write_bytes(content)
    monkeypatch.setattr(intake, "LIMITS", LIMITS._replace(size=1000))
    with pytest.raises(SessionFileError, match="larger than 1,000 bytes, the largest file that is read"):
        intake.read_file(path)


def test_a_sparse_file_is_refused_unread(tmp_path: Path) -> None:
    """A journal of 30 GB without content is refused by its size, before it is kept in memory."""
    path = tmp_path / "run.journal.jsonl"
    with path.open("wb") as file:
        file.write(journal([0, 1], [1, 2], END).splitlines(keepends=True)[0])
        file.truncate(30 << 30)
    tracemalloc.start()
    try:
        with pytest.raises(SessionFileError, match="larger than 2 GiB"):
            read_session(path)
        with pytest.raises(SessionFileError, match="larger than 2 GiB"):
            Session.load(path)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert most < 2 * MIB


@pytest.mark.parametrize("name", ["run.json", "run.json.gz", "run.journal.jsonl", *LOGS])
def test_a_byte_order_mark_means_nothing(tmp_path: Path, name: str) -> None:
    """A session, a journal and every log can begin with a UTF-8 byte-order mark."""
    (tmp_path / "usage.jsonl").write_bytes(LOGS["usage.jsonl"][0])
    if name in LOGS:
        content = LOGS[name][0]
    elif name.endswith(".jsonl"):
        content = journal([0, 1], [1, 2], END)
    else:
        content = gzip.decompress(session().save(tmp_path / "made.json.gz").read_bytes())
    path = tmp_path / name
    marked = intake.UTF_8_MARK + content
    path.write_bytes(gzip.compress(marked) if name.endswith(".gz") else marked)
    found = read_session(path)

    assert len(found.samples) > 1
    assert not any("could not be read" in warning for warning in found.warnings)


def test_other_encodings_are_named(tmp_path: Path) -> None:
    """A session in UTF-16 is refused with the reason."""
    path = tmp_path / "run.json"
    path.write_bytes(session().save(tmp_path / "made.json").read_text(encoding="utf-8").encode("utf-16"))

    with pytest.raises(SessionFileError, match=r"run.json: UTF-16, UTF-8 expected$"):
        Session.load(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFO on this system")
class TestFifo:
    def test_nobody_writes(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A FIFO that nobody opens for writing is not waited for without end."""
        monkeypatch.setattr(intake, "_WRITER_S", 0.1)
        path = tmp_path / "fifo"
        os.mkfifo(path)

        with pytest.raises(SessionFileError, match=r"no program has opened this FIFO for writing within 0\.1 s"):
            read_session(path)

    def test_a_slow_writer_is_waited_for(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Somebody who has opened it may take any time between two writes."""
        monkeypatch.setattr(intake, "_WRITER_S", 0.2)
        path = tmp_path / "fifo"
        os.mkfifo(path)
        may_go_on = threading.Event()

        def write() -> None:
            with path.open("wb", buffering=0) as fifo:
                may_go_on.wait(HANGING_S)
                fifo.write(b"one")
                fifo.write(b"two")

        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        with intake.open_file(path) as file:
            threading.Timer(0.4, may_go_on.set).start()
            found = intake.content(file, path)
        writer.join(HANGING_S)

        assert found == b"onetwo"
