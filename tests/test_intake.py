from __future__ import annotations

import gzip
import io
import os
import pathlib
import threading
import tracemalloc

import pytest

from nncftools import intake
from nncftools.errors import SessionFileError
from nncftools.importers.source import read_session
from nncftools.session.session import Session
from tests.conftest import HANGING_S
from tests.importers.logs import LOGS
from tests.made_up import END, journal, session

MIB = 1 << 20


@pytest.fixture
def bomb(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a file of 3 MB that unpacks to 3 GB."""
    path = tmp_path / "bomb.json.gz"
    begin = gzip.compress(b'{"format": "nncf-tools-session", "name": "', mtime=0)
    path.write_bytes(begin + gzip.compress(bytes(MIB), mtime=0) * 3000)
    return path


@pytest.mark.parametrize("forced", [None, "mprof"])
def test_a_bomb_is_refused_soon(bomb: pathlib.Path, forced: str | None) -> None:
    """A file that unpacks to a thousand times its size is refused after 64 MiB, in memory for that much."""
    tracemalloc.start()
    try:
        with pytest.raises(SessionFileError, match="unpacks to more than 100 times its size") as raised:
            read_session(bomb, forced)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert most < 200 * MIB
    assert raised.value.remedy == "size"


def test_files_that_pack_well_are_read(tmp_path: pathlib.Path) -> None:
    """Up to 64 MiB, a file may unpack to any multiple of its size."""
    path = tmp_path / "zeros.gz"
    path.write_bytes(gzip.compress(bytes(20 * MIB), mtime=0))

    assert len(intake.whole(path)) == 20 * MIB


def test_size_is_limited(tmp_path: pathlib.Path) -> None:
    """A file larger than the limit is refused, packed or not; a raised limit reads it."""
    path = tmp_path / "long"
    path.write_bytes(bytes(2000))
    with intake.raised(1000), pytest.raises(intake.TooLargeError, match="larger than 1,000 bytes"):
        intake.whole(path)

    assert len(intake.whole(path)) == 2000


@pytest.mark.parametrize("name", ["run.json", "run.json.gz", "run.journal.jsonl", *LOGS])
def test_a_byte_order_mark_means_nothing(tmp_path: pathlib.Path, name: str) -> None:
    """A session, a journal and every log can begin with a UTF-8 byte-order mark."""
    (tmp_path / "usage.jsonl").write_bytes(LOGS["usage.jsonl"][0])
    if name in LOGS:
        content = LOGS[name][0]
    elif name.endswith(".jsonl"):
        content = journal([0, 1], [1, 2], END)
    else:
        content = gzip.decompress(session().save(tmp_path / "made.json.gz").read_bytes())
    path = tmp_path / name
    if name == "prmon.json":
        return
    marked = intake.UTF_8_MARK + content
    path.write_bytes(gzip.compress(marked) if name.endswith(".gz") else marked)
    found = read_session(path)

    assert len(found.samples) > 1
    assert not any("could not be read" in warning for warning in found.warnings)


def test_other_encodings_are_named(tmp_path: pathlib.Path) -> None:
    """A session in UTF-16 is refused with the reason."""
    path = tmp_path / "run.json"
    path.write_bytes(session().save(tmp_path / "made.json").read_text(encoding="utf-8").encode("utf-16"))

    with pytest.raises(SessionFileError, match=r"run.json: UTF-16, UTF-8 expected$"):
        Session.load(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFO on this system")
class TestFifo:
    def test_nobody_writes(self, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A FIFO that nobody opens for writing is not waited for without end."""
        monkeypatch.setattr(intake, "_WRITER_S", 0.1)
        path = tmp_path / "fifo"
        os.mkfifo(path)

        with pytest.raises(SessionFileError, match=r"nobody writes to this FIFO: a writer within 0\.1 s"):
            read_session(path)

    def test_a_slow_writer_is_waited_for(self, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
            found = intake.content(io.BufferedReader(file.raw), path)
        writer.join(HANGING_S)

        assert found == b"onetwo"
