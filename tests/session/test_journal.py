from __future__ import annotations

from math import isnan

import pytest

from nncftools.errors import SessionFileError
from nncftools.session.journal import session_from
from nncftools.session.model import Exit, Session
from tests.made_up import END, START, header, journal

SAMPLES: tuple[object, ...] = ([0, 10], [0.5, 30], [1, 20])


def read(*lines: object, first: object = None) -> Session:
    """Return the session of a journal."""
    return session_from(journal(*lines, first=first), "run.jsonl")


def bad_lines(*lines: object) -> tuple[list[float], list[str]]:
    """Return the RSS and the warnings of a finished journal."""
    of = read(*lines, END)
    return list(of.samples["rss"]), of.warnings


class TestFinished:
    def test_columns(self) -> None:
        """Every sample line is one value in every column."""
        of = read([0, 10, 0.5], [0.5, 30, 0.75], END, first=header(["rss", "cpu_user"]))

        assert {name: list(column) for name, column in of.samples.items()} == {
            "time_s": [0, 0.5],
            "rss": [10, 30],
            "cpu_user": [0.5, 0.75],
        }

    def test_end(self) -> None:
        """The end line tells duration, totals and exit status."""
        of = read(*SAMPLES, END)

        assert (of.finished, of.duration_s, of.totals, of.exit) == (True, 1.25, {"cpu_user": 0.5}, Exit(code=3))

    def test_header(self) -> None:
        """The first line tells what was run, where, and how."""
        of = read(END, first=header(name="a name", command=["a", "b c"], cwd="/there", host={"name": "box"}))

        assert (of.name, of.command, of.cwd, of.host.name) == ("a name", ["a", "b c"], "/there", "box")
        assert (of.sampler.interval_s, of.sampler.source) == (0.5, "proc")

    def test_no_sample(self) -> None:
        """A command that ended before its first sample is a session without samples."""
        of = read(END)

        assert (len(of.samples), of.peaks["rss"].low) == (0, None)

    def test_peaks(self) -> None:
        """Peaks are computed from the samples and what the kernel told of the processes."""
        of = read(*SAMPLES, {"process": {"id": 0, "high_water_mark": 35}}, END)

        assert (of.peaks["rss"].sampled, of.peaks["rss"].low) == (30, 35)

    def test_lines_of_one_process_add_up(self) -> None:
        """Later lines of a process add to earlier ones and overrule them."""
        later = {"process": {"id": 0, "name": "later", "end_s": 1.0}}
        (found,) = read(*SAMPLES, later, END).processes

        assert (found.pid, found.name, found.start_s, found.end_s) == (100, "later", 0.0, 1.0)

    def test_warnings_in_order(self) -> None:
        """Warnings of the recorder are the session's."""
        assert read({"warning": "first"}, [0, 1], {"warning": "second"}, END).warnings == ["first", "second"]

    def test_attached(self) -> None:
        """A recording of a running process tells its PID, and the command that it runs."""
        of = read([0, 1], END, first=header(command=[], plan={**header()["plan"], "pid": 100}))

        assert (of.attached_to, of.command) == (100, ["work"])

    def test_null_is_nan(self) -> None:
        """A figure that could not be read is unknown, not 0."""
        first, second = read([0, None], [0.5, 30], END).samples["rss"]

        assert isnan(first)
        assert second == 30

    def test_many_samples(self) -> None:
        """Samples are read in chunks, and each comes once and in its place."""
        of = read(*([place / 8, place] for place in range(25_000)), END)

        assert list(of.samples["rss"]) == list(range(25_000))
        assert list(of.samples.time_s) == [place / 8 for place in range(25_000)]


class TestUnfinished:
    def test_without_end(self) -> None:
        """Without an end line, duration and totals are those of the last sample and the exit status is unknown."""
        of = read([0, 1, 0.5], [0.5, 2, 0.75], first=header(["rss", "cpu_user"]))

        assert (of.finished, of.duration_s, of.totals, of.exit) == (False, 0.5, {"cpu_user": 0.75}, None)

    def test_last_counter_unknown(self) -> None:
        """A counter that the last sample does not know is unknown at the end."""
        assert read([0, 0.5], [0.5, None], first=header(["cpu_user"])).totals == {"cpu_user": None}

    @pytest.mark.parametrize("cut", [b"[1.5,4", b'{"end": {"dura', b"[1.5,40]"], ids=["sample", "end", "line end"])
    def test_cut_last_line_is_left_out(self, cut: bytes) -> None:
        """A last line that a kill cut off is no damage: it was never written whole."""
        of = read(*SAMPLES, cut)

        assert (list(of.samples["rss"]), of.warnings) == ([10, 30, 20], [])

    def test_no_start(self) -> None:
        """A journal that ends before the command began says so."""
        data = journal(first=header()).split(b"\n")[0] + b"\n"
        with pytest.raises(SessionFileError) as caught:
            session_from(data, "run.jsonl")

        assert str(caught.value) == "run.jsonl: nothing was recorded: the recorder ended before the command began"

    def test_error(self) -> None:
        """A recorder that could not start the command says why."""
        with pytest.raises(SessionFileError) as caught:
            read({"end": {"error": "Permission denied"}})

        assert str(caught.value) == "run.jsonl: nothing was recorded: Permission denied"


class TestDamaged:
    @pytest.mark.parametrize(
        "line",
        [
            b"[0.7,4\n",
            b"[0.7]\n",
            b"[0.7,40,50]\n",
            b'[0.7,"40"]\n',
            b"[null,40]\n",
            b'{"warning": "cut\n',
            b'{"warning": "\xff"}\n',
            b'{"process": {"pid": 5}}\n',
            b'{"process": {"id": [5]}}\n',
            b'{"process": {"id": 5, "pid": "x"}}\n',
            b'{"end": 5}\n',
            b"\x00\x00\x00\x00\n",
            b"\n",
        ],
        ids=repr,
    )
    def test_damaged_line_is_left_out_and_counted(self, line: bytes) -> None:
        """A line that cannot be read costs itself only, and the reader is told."""
        values, warnings = bad_lines([0, 10], line, [1, 20])

        assert values == [10, 20]
        assert len(warnings) == 1
        assert "of the journal could not be read" in warnings[0]
        assert warnings[0].endswith("line 5")

    def test_damaged_lines_are_counted_one_by_one(self) -> None:
        """Every unreadable line is counted, samples and others, and the earliest named."""
        _, warnings = bad_lines([0, 10], b"{\n", [0.5, 20], b"[1\n", b"[2,3,4]\n")

        assert warnings == ["3 lines of the journal could not be read, the first is line 5"]

    def test_earliest_damage_is_named(self) -> None:
        """The line that is named is the first in the file, also when samples are read after the events."""
        _, warnings = bad_lines([0, 10], b"[1\n", [0.5, 20], b"{\n")

        assert warnings == ["2 lines of the journal could not be read, the first is line 5"]

    def test_one_damaged_line_is_singular(self) -> None:
        """One line is not called lines."""
        _, warnings = bad_lines([0, 10], b"[1\n")

        assert warnings[0].startswith("1 line of the journal ")

    def test_damage_among_many_samples(self) -> None:
        """In a long journal one damaged sample costs no other."""
        lines: list[object] = [[place / 8, place] for place in range(12_000)]
        lines[7_000] = b"[875,\x00\x00\x00\x00]\n"
        values, warnings = bad_lines(*lines)

        assert values == [place for place in range(12_000) if place != 7_000]
        assert len(warnings) == 1

    def test_size_that_is_no_integer(self) -> None:
        """A size with a fraction, as a foreign writer may give it, is read and not stumbled over."""
        of = read([0, 10.5], [0.5, 7], END)

        assert (of.peaks["rss"].sampled, of.peaks["rss"].at_s) == (10, 0)


class TestRefused:
    @pytest.mark.parametrize(
        ("first", "message"),
        [
            ({"format": "nncf-tools-journal", "version": 1}, "line 1 is not the header of a journal: "),
            (header(plan={"interval_s": 0.5, "source": "proc"}), "line 1 is not the header of a journal: "),
            (header(plan={"interval_s": "often", "columns": [], "source": ""}), "line 1 is not the header of a "),
            (header(plan={"interval_s": 0.5, "columns": ["rss"]}), "line 1 is not the header of a journal: "),
            (header(version=2), "journal version 2, this nncf-tools reads up to 1: upgrade"),
        ],
        ids=["no plan", "no columns", "no interval", "no source", "newer version"],
    )
    def test_header(self, first: object, message: str) -> None:
        """A header that cannot be read is one line that names the file."""
        with pytest.raises(SessionFileError) as caught:
            read(*SAMPLES, END, first=first)

        assert str(caught.value).startswith(f"run.jsonl: {message}")

    def test_nothing_but_a_cut_header(self) -> None:
        """A journal whose only line was cut off says that nothing was recorded, as one line."""
        with pytest.raises(SessionFileError, match=r"^run\.jsonl: "):
            session_from(b'{"format": "nncf-tools-journal", "ver', "run.jsonl")


def test_start_moment() -> None:
    """The moment that times count from is kept both as UTC and on the monotonic clock."""
    of = read(END)

    assert (of.start.utc, of.start.monotonic_ns) == (START["start"]["utc"], 5)
