from __future__ import annotations

import json
import os
import pathlib
import sys

import msgspec
import pytest

from nncftools.marks import line


@pytest.mark.parametrize(
    "text", ["", "plain", 'a "quoted" \\ one', "tab\tline\nnul\0", "Größe", "世界", "\u2028", "😀", "\x7f", "\ufffd"]
)
def test_quoted_is_json(text: str) -> None:
    """Any text survives the round trip, in ASCII without line breaks."""
    quoted = line.quoted(text)

    assert json.loads(quoted) == text
    assert quoted.isascii()
    assert quoted.isprintable()


@pytest.mark.parametrize("text", ["\ud800", "a\udcffb", "\udc00\ud800"])
def test_half_a_pair_is_replaced(text: str) -> None:
    """An unpaired surrogate, as in a path that is not UTF-8, is replaced: readers would reject the line."""
    assert msgspec.json.decode(line.quoted(text)) == "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)


def test_lines_are_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin, end and moment name process and thread, and hold the members of the operation and the process's memory."""
    members = line.common_members("Name", "auto", "Export", "a.b", step=True)
    monkeypatch.setattr(line, "own_memory", lambda: ',"rss":7')
    here = {"pid": os.getpid(), "tid": json.loads(f"{{{line.here()}}}")["tid"], "rss": 7}
    about = {"name": "Name", "kind": "Export", "call": "a.b", "source": "auto", "step": True}

    assert json.loads(line.begin(3, members, 5)) == {"event": "begin", "op": 3, **about, "t_ns": 5, **here}
    assert json.loads(line.moment(members, 5)) == {**about, "t_ns": 5, **here}
    assert json.loads(line.end(3, 7)) == {"event": "end", "op": 3, "t_ns": 7, **here}
    assert json.loads(line.end(3, 7, "E", ',"x":1')) == {**json.loads(line.end(3, 7)), "error": "E", "x": 1}
    assert json.loads(line.warning('"')) == {"warning": '"'}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is no /proc")
def test_own_memory() -> None:
    """A process reads its RSS and its high-water mark, in bytes."""
    own = json.loads(f'{{"x":0{line.own_memory()}}}')

    assert 1 << 20 < own["rss"] <= own["high_water_mark"]


def test_own_memory_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the kernel does not tell, the members are missing."""

    def fail(*_: object) -> int:
        raise FileNotFoundError

    monkeypatch.setattr(os, "open", fail)

    assert line.own_memory() == ""


def test_numbers_of_operations_are_the_apis() -> None:
    """In nncftools, operations have odd numbers; the hook's copy of the module uses even ones."""
    assert next(line.operations) % 2 == 1


def test_append(tmp_path: pathlib.Path) -> None:
    """A line is appended to existing content."""
    log = tmp_path / "log"
    log.write_bytes(b"before\n")
    line.append(os.fsencode(log), "after\n")

    assert log.read_bytes() == b"before\nafter\n"


@pytest.mark.parametrize("name", ["missing", "missing/log", "."])
def test_append_makes_nothing(tmp_path: pathlib.Path, name: str) -> None:
    """A missing log, or one that is not a file, causes no error, and nothing is created."""
    line.append(os.fsencode(tmp_path / name), "text\n")

    assert list(tmp_path.iterdir()) == []


def test_append_lets_the_programs_exceptions_pass(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that a signal handler of the program raises during a write is not mistaken for an unwritable log."""
    log = tmp_path / "log"
    log.touch()

    def interrupted(*_: object) -> int:
        raise TimeoutError("the program's")

    monkeypatch.setattr(os, "write", interrupted)
    with pytest.raises(TimeoutError, match="the program's"):
        line.append(os.fsencode(log), "text\n")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFO on this system")
@pytest.mark.parametrize("reads", [True, False])
def test_only_a_file_is_written(tmp_path: pathlib.Path, *, reads: bool) -> None:
    """A FIFO in place of the log gets nothing, and is not waited for, whether somebody reads it or not."""
    path = tmp_path / "log"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK) if reads else -1
    try:
        for _ in range(10_000):  # more than a pipe holds
            line.append(os.fsencode(path), "{}\n")
        assert reader < 0 or os.read(reader, 10) == b""
    finally:
        if reader >= 0:
            os.close(reader)
