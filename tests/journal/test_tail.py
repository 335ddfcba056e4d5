from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator

import pytest

from nncftools.errors import SessionFileError
from nncftools.journal import reading
from nncftools.journal.lines import FORMAT, VERSION, Header
from nncftools.journal.reading import Lines
from nncftools.session.recording import Tail

PLAN = {"columns": ["rss", "processes"], "interval_s": 0.1, "source": "proc"}
HEADER = {"format": FORMAT, "version": VERSION, "host": {}, "plan": PLAN}


class Journal:
    """A journal that is written while it is read."""

    def __init__(self, path: pathlib.Path) -> None:
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
def journal(tmp_path: pathlib.Path) -> Iterator[Journal]:
    """Make a journal with a header."""
    made = Journal(tmp_path / "run.journal.jsonl")
    yield made
    made.file.close()


class TestGrowing:
    def test_each_line_once(self, journal: Journal) -> None:
        """Lines are returned only once."""
        journal.append("[0,1,2]\n")
        assert journal.samples() == [[0, 1, 2]]
        assert journal.samples() == []
        journal.append("[1,3,null]\n[2,4,5]\n")
        assert journal.samples() == [[1, 3, None], [2, 4, 5]]

    def test_begin_of_a_line(self, journal: Journal) -> None:
        """A line is read when it is complete."""
        journal.append("[0,1,2]\n[1,3")
        assert journal.samples() == [[0, 1, 2]]
        assert journal.bad() == []
        journal.append(",4]\n")
        assert journal.samples() == [[1, 3, 4]]

    def test_taken_back(self, journal: Journal) -> None:
        """The beginning of a line that its writer truncates is dropped."""
        journal.append("[0,1,2]\n[1,3")
        assert journal.samples() == [[0, 1, 2]]
        with journal.path.open("rb+") as file:
            file.truncate(journal.path.stat().st_size - len("[1,3"))
        journal.append("[9,9,9]\n")
        assert journal.samples() == [[9, 9, 9]]

    def test_other_lines(self, journal: Journal) -> None:
        """Processes, warnings and the end come in order; the RSS of each process has its sample's time."""
        journal.append('[0.5,1,2]\n{"each":{"0":7}}\n{"warning":"w"}\n{"process":{"id":0,"pid":4}}\n{"end":{}}\n')
        (chunk,) = journal.tail.read()
        assert chunk.each == [(0.5, {0: 7})]
        assert chunk.lines == [{"warning": "w"}, {"process": {"id": 0, "pid": 4}}, {"end": {}}]

    def test_each_in_a_later_piece(self, journal: Journal) -> None:
        """The time is that of the previous sample, even when that was read earlier."""
        journal.append("[0.5,1,2]\n")
        journal.samples()
        journal.append('{"each":{"0":7}}\n')
        (chunk,) = journal.tail.read()
        assert chunk.each == [(0.5, {0: 7})]


class TestLongLines:
    def test_longer_than_a_piece(self, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
        """A line longer than one chunk is read whole."""
        monkeypatch.setattr(reading, "_CHUNK", 16)
        word = "x" * 1000
        journal.append(f'[0,1,2]\n{{"warning":"{word}"}}\n[1,3,4]\n')
        chunks = list(journal.tail.read())
        assert [line for chunk in chunks for line in chunk.lines] == [{"warning": word}]
        assert [sample[0] for chunk in chunks for sample in chunk.samples] == [0, 1]

    def test_longest(self, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
        """An extremely long line is left out and counted; the following lines are read."""
        monkeypatch.setattr(reading, "_CHUNK", 16)
        monkeypatch.setattr(reading, "_LONGEST_LINE", 64)
        journal.append(b"[0,1,2]\n" + b"\0" * 1000 + b"\n[1,3,4]\n")
        chunks = list(journal.tail.read())
        assert [sample[0] for chunk in chunks for sample in chunk.samples] == [0, 1]
        assert [number for chunk in chunks for number in chunk.bad] == [3]

    def test_one(self, tmp_path: pathlib.Path) -> None:
        """A single line can be requested; the others come after it."""
        path = tmp_path / "file"
        path.write_bytes(b"a\nb\nc\nd")
        with path.open("rb", buffering=0) as file:
            lines = Lines(file)
            assert [lines.next(one=True), lines.next(), lines.next()] == [b"a\n", b"b\nc\n", b""]


class TestBadLines:
    @pytest.mark.parametrize(
        "line",
        [
            b"[1,2]",
            b"[1,2,3,4]",
            b"[null,2,3]",
            b'[1,"2",3]',
            b"[1,2,3",
            b"[1,2,3],[4,5,6]",
            b"[1,NaN,3]",
            b"[1,\xff,3]",
            b"",
            b"\0\0",
            b"nonsense",
            b'{"start":{}}',
            b'{"each":{"x":1}}',
            b'{"process":{"pid":1}}',
            b"[" * 5000,
            b'{"warning":' + b"[" * 5000,
        ],
    )
    def test_found(self, journal: Journal, line: bytes) -> None:
        """Of many lines, only the invalid one is reported; the others are kept."""
        good = [[float(number), 1.0, 2.0] for number in range(9)]
        for sample in good[:6]:
            journal.append(json.dumps(sample) + "\n")
        journal.append(line + b"\n")
        for sample in good[6:]:
            journal.append(json.dumps(sample) + "\n")
        (chunk,) = journal.tail.read()
        assert chunk.bad == [8]
        assert chunk.samples == good

    def test_several(self, journal: Journal) -> None:
        """All of several bad lines are reported, also in a later chunk."""
        journal.append("[0,1]\n[1,2,3]\nx\n[2]\n")
        assert sorted(journal.bad()) == [2, 4, 5]
        journal.append("[3,1,2]\n[4,1]\n")
        assert journal.bad() == [7]

    def test_each_without_a_sample(self, journal: Journal) -> None:
        """Per-process RSS without a sample is a bad line."""
        journal.append('{"each":{"0":7}}\n')
        assert journal.bad() == [2]


class TestHeader:
    def opened(self, tmp_path: pathlib.Path, first: object, given: Header | None = None) -> Tail:
        """Open a journal with this first line."""
        path = tmp_path / "run.journal.jsonl"
        path.write_text((first if isinstance(first, str) else json.dumps(first)) + "\n[0,1,2]\n")
        with path.open("rb", buffering=0) as file:
            found = Tail(file, "run", given)
            self.samples = [sample for chunk in found.read() for sample in chunk.samples]
        return found

    def test_older_plan(self, tmp_path: pathlib.Path) -> None:
        """An old journal, whose plan holds a command, signals and a channel, is read; those are dropped."""
        older = {"argv": ["touch", "ran"], "signal_mask": [2], "channel": 3, "max_samples": 7, "redact": None}
        found = self.opened(tmp_path, HEADER | {"plan": PLAN | older, "unknown": 1})
        assert found.plan.columns == ["rss", "processes"]
        assert found.plan.max_samples == 7
        assert not set(found.plan.fields()) & {"argv", "signal_mask", "channel"}
        assert self.samples == [[0, 1, 2]]

    def test_damaged_but_known(self, tmp_path: pathlib.Path) -> None:
        """With a known header, a journal whose first line is damaged can be read."""
        known: Header = {
            "format": FORMAT,
            "host": {},
            "plan": {"columns": ["a", "b"], "interval_s": 1, "source": "proc"},
        }
        found = self.opened(tmp_path, "Xdamaged", known)
        assert found.header is known
        assert self.samples == [[0, 1, 2]]

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
            {key: value for key, value in HEADER.items() if key != "plan"},
        ],
    )
    def test_wrong(self, tmp_path: pathlib.Path, first: object) -> None:
        """A first line that is not a header is refused with the file name."""
        with pytest.raises(SessionFileError, match="run: line 1 is not the header of a journal"):
            self.opened(tmp_path, first)

    def test_newer(self, tmp_path: pathlib.Path) -> None:
        """A journal of a later version asks for an upgrade."""
        with pytest.raises(SessionFileError, match=r"journal version 99, .* upgrade"):
            self.opened(tmp_path, HEADER | {"version": 99})


@pytest.mark.parametrize(
    "line",
    [
        '{"process": {"id": 0, "peak_rss": %s}}' % ("9" * 400),
        '{"process": {"id": 0, "pid": 99999999999999999999}}',
        '{"process": {"id": 0, "start_s": 1e300}}',
        '{"rise": {"id": 0, "from_s": 2, "to_s": 1, "high_water_mark": 1, "others": 0, "others_around": 0}}',
        "[1e300, 1, 1]",
        "[0.5, 1e300, 1]",
        "[-0.5, 1, 1]",
    ],
)
def test_figures_that_cannot_be(journal: Journal, line: str) -> None:
    """A line with a figure that cannot be is unreadable, whichever line it is."""
    journal.append(f"[0.25, 1, 1]\n{line}\n")
    (chunk,) = journal.tail.read()

    assert chunk.bad == [3]
    assert chunk.lines == []


def test_the_rss_of_processes_at_no_time(journal: Journal) -> None:
    """The processes' RSS after a sample whose time is null, or no number, is unreadable."""
    journal.append('[null, 1, 1]\n{"each": {"0": 5}}\n[NaN, 1, 1]\n{"each": {"0": 5}}\n')
    (chunk,) = journal.tail.read()

    assert chunk.bad != []
    assert chunk.each == []


@pytest.mark.parametrize("pattern", ["(", "a" * 5_000_000])
def test_the_header_is_checked(tmp_path: pathlib.Path, pattern: str) -> None:
    """A header with a text that is too long, or with a pattern that is none, is refused with the reason."""
    path = tmp_path / "run.journal.jsonl"
    path.write_text(json.dumps({**HEADER, "plan": {**PLAN, "redact": [pattern]}}) + "\n", encoding="utf-8")
    with path.open("rb") as file, pytest.raises(SessionFileError, match="line 1 is not the header of a journal"):
        Tail(file, "run")
