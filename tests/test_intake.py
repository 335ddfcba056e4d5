from __future__ import annotations

import gzip
import os
import pathlib
import re
import threading
import tracemalloc

import msgspec
import pytest

from nncftools import intake
from nncftools.errors import SessionFileError
from nncftools.importers.source import read_session
from nncftools.intake import LIMITS, WrongValueError, check
from nncftools.session.model import Host, Mark, Process, Series, Start
from nncftools.session.session import Session
from tests.conftest import HANGING_S
from tests.importers.logs import LOGS
from tests.made_up import END, journal, session

BEYOND = 10**400


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"rss": BEYOND}, "at `$.rss`: a number from -9.22337203685e+18 to 9.22337203685e+18 expected, found 9999"),
        ({"at_s": float("inf")}, "at `$.at_s`: a number from -10000000000 to 10000000000 expected, found inf"),
        ({"at_s": float("nan")}, "at `$.at_s`: a number from -10000000000 to 10000000000 expected, found nan"),
        ({"each": {7: BEYOND}}, "at `$.each[1]`: a number from"),
        ({"rss": [1, None, BEYOND]}, "at `$.rss[1]`: a number from"),
        ({"pid": 10**20}, "at `$.pid`: a number from 0 to 2147483647 expected, found 100000000000000000000"),
        ({"pid": -1}, "at `$.pid`: a number from 0 to 2147483647 expected, found -1"),
        ({"duration_s": -1.0}, "at `$.duration_s`: a number from 0 to 10000000000 expected, found -1.0"),
        ({"utc": "noon"}, "at `$.utc`: Invalid isoformat string: 'noon'"),
        ({"utc": "2026-11-21T07:00:00"}, "at `$.utc`: a time with its zone expected"),
        ({"utc": "0001-01-01T00:00:00+00:00"}, "at `$.utc`: a year from 1970 to 2286 expected"),
        ({"start_s": 2, "end_s": 1}, "at `$.end_s`: not before `start_s` (2) expected, found 1"),
        ({"from_s": 2, "to_s": 1}, "at `$.to_s`: not before `from_s` (2) expected, found 1"),
        ({"time_s": [0, 1], "rss": [1]}, "at `$.rss`: as many values as `time_s` expected (2), found 1"),
        ({"time_s": [1, 0], "rss": [1, 1]}, "at `$.time_s[1]`: time goes back from 1 to 0"),
        ({"\x1b[31m": {"pid": -1}}, "at `$.\\x1b[31m.pid`: a number"),
    ],
)
def test_what_cannot_be_is_named_with_its_place(value: object, message: str) -> None:
    """A number, a time, an order or a length that cannot be is refused, with its place and what was expected."""
    found = message.replace("9999", "1000")

    with pytest.raises(WrongValueError, match=f"^{re.escape(found)}"):
        check(value)


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (Process(id=0, series=Series(time_s=[0.0, 1.0], rss=[1])), "$.series.rss"),
        (Process(id=0, series=Series(time_s=[0.0], rss=[BEYOND])), "$.series.rss[0]"),
        (Process(id=BEYOND), "$.id"),
        (Mark(name="a", start_s=2.0, end_s=1.0), "$.end_s"),
        (Host(memory=-1), "$.memory"),
        (Start(utc="noon"), "$.utc"),
    ],
)
def test_structures_are_checked_by_the_names_of_their_fields(value: msgspec.Struct, place: str) -> None:
    """A field is checked as a key of JSON is: a new one needs no line of its own."""
    with pytest.raises(WrongValueError, match=re.escape(f"at `{place}`")):
        check(value)


@pytest.mark.parametrize("value", [Process(id=0), Host(), {"rss": [1, None]}, [True, "a", None, {}], {"code": -1}])
def test_what_can_be_passes(value: object) -> None:
    """Unknown values, flags, texts and negative exit statuses are nothing to refuse."""
    check(value)


def test_depth_is_bounded() -> None:
    """What is nested without end is refused, not followed."""
    nested: list[object] = []
    for _ in range(10_000):
        nested = [nested]

    with pytest.raises(WrongValueError, match="at most 100 levels of lists and objects expected"):
        check(nested)


def test_texts_and_lists_have_a_largest_size() -> None:
    """A text or list beyond its limit is refused."""
    with pytest.raises(WrongValueError, match=r"at `\$.name`: at most 4,194,304 characters expected, found 4,194,305"):
        check({"name": "x" * (LIMITS.text + 1)})
    with pytest.raises(WrongValueError, match=r"at `\$.processes`: at most 200,000 items expected"):
        check({"processes": [{}] * (LIMITS.processes + 1)})


@pytest.mark.parametrize(
    ("text", "is_one"), [("1", True), ("2147483647", True), ("2147483648", False), ("9" * 20, False), ("-1", False)]
)
def test_pids(text: str, is_one: bool) -> None:  # noqa: FBT001 — a parameter of the test
    """A PID is a whole number that a kernel can give."""
    assert intake.is_pid(text) == is_one


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
    """A file that unpacks to a thousand times its size is refused early: gzip of Python 3.12 on reads 128 KiB ahead."""
    tracemalloc.start()
    try:
        with pytest.raises(SessionFileError, match="unpacks to more than 800 times its size"):
            read_session(bomb, forced)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert most < 700 * MIB


def test_files_that_pack_well_are_read(tmp_path: pathlib.Path) -> None:
    """Up to 64 MiB, a file may unpack to any multiple of its size."""
    path = tmp_path / "zeros.gz"
    path.write_bytes(gzip.compress(bytes(20 * MIB), mtime=0))

    assert len(intake.whole(path)) == 20 * MIB


@pytest.mark.parametrize("content", [bytes(2000), gzip.compress(bytes(2000), mtime=0)])
def test_size_is_limited(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    """A file larger than the limit is refused, packed or not."""
    path = tmp_path / "long"
    path.write_bytes(content)
    monkeypatch.setattr(intake, "LIMITS", LIMITS._replace(size=1000))
    with pytest.raises(intake.TooLargeError, match="larger than 1,000 bytes, the largest file that is read"):
        intake.whole(path)


def test_a_sparse_file_is_refused_unread(tmp_path: pathlib.Path) -> None:
    """A journal of 30 GB without content is refused by its size, before it is kept in memory."""
    path = tmp_path / "run.journal.jsonl"
    with path.open("wb") as file:
        file.write(journal([0, 1], [1, 2], END).splitlines(keepends=True)[0])
        file.truncate(30 << 30)
    tracemalloc.start()
    try:
        with pytest.raises(intake.TooLargeError, match="larger than 2 GiB"):
            read_session(path)
        with pytest.raises(intake.TooLargeError, match="larger than 2 GiB"):
            Session.load(path)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert most < 2 * MIB


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
            found = intake.content(file, path)
        writer.join(HANGING_S)

        assert found == b"onetwo"
