"""What the helper's log says, whole or damaged."""

from __future__ import annotations

import base64
import io
import json
import pathlib
import random
import time
from array import array
from itertools import pairwise
from math import isnan, nan
from typing import Any

import pytest

from nncftools import Session as nncftools_Session
from nncftools.analysis.session import Session
from nncftools.errors import SessionFileError
from nncftools.journal.writing import Thinner
from nncftools.session import snapshots as session_snapshots
from nncftools.session.model import (
    ControlGroup,
    Exit,
    FileRead,
    FileSystem,
    Floor,
    Frame,
    LimitReached,
    MemoryLimit,
    OomKills,
    PageFaults,
    Process,
    Rise,
    Snapshots,
    StackWindow,
    Start,
    ThreadStacks,
    WatchedProcess,
)
from nncftools.session.recording import StarterFacts, session_from
from nncftools.session.samples import kept_rows, known
from nncftools.session.snapshots import snapshots_from
from tests.made_up import END, header, journal, session
from tests.made_up import START as STARTED

SAMPLES: tuple[object, ...] = ([0, 10], [0.5, 30], [1, 20])


def read(*lines: object, first: object = None) -> Session:
    """Return the session of a journal."""
    return Session.of(session_from(io.BytesIO(journal(*lines, first=first)), "run.jsonl"))


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

    @pytest.mark.parametrize(
        ("counted", "expected"),
        [
            ((0.375, 0.125), (0.375, 0.125)),
            ((0.3, 0.1), (0.33, 0.11)),
            ((0.0, 0.0), (0.44, 0.0)),
            ((0.3, None), (0.3, None)),
        ],
        ids=["above", "below", "less than a tick", "unknown"],
    )
    def test_cpu_time_of_all_processes(
        self, counted: tuple[float, float | None], expected: tuple[float, float | None]
    ) -> None:
        """The total is at least the sum of the processes; user and system time keep their ratio."""
        names = ("cpu_user", "cpu_system")
        spent = [
            {"process": {"id": number, "pid": 5 + number, "cpu_s": cpu_s}} for number, cpu_s in ((0, 0.4), (1, 0.04))
        ]
        end = {"end": {**END["end"], "totals": dict(zip(names, counted, strict=True))}}

        assert tuple(read(*spent, end, first=header(names)).totals.values()) == pytest.approx(expected)

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

    def test_what_a_full_disk_kept_out(self) -> None:
        """Lines that the journal has no room for are taken from what the sampler told at its end."""
        rest = journal([1, 20], {"warning": "look"}, END).partition(b"\n")[2]
        whole = io.BytesIO(journal([0, 10], [0.5, 30]))
        known = StarterFacts(end={"exit": {"code": 9, "signal": None}, "unwritten": rest.decode()})
        of = Session.of(session_from(whole, "run.jsonl", known))

        assert (of.finished, list(of.samples["rss"]), of.warnings, of.exit) == (
            True,
            [10, 30, 20],
            ["look"],
            Exit(code=3),
        )

    def test_journal_that_was_cut(self) -> None:
        """Samples that somebody took out of the journal are said to be missing, not to be merged."""
        of = read(*SAMPLES, {"end": {"sampler": {"taken": 10, "rows": 10}}})

        assert of.warnings == ["7 samples are missing from the journal, which was cut during the recording"]
        assert of.sampler.merged_s is None

    def test_sampler_of_a_later_version(self) -> None:
        """Facts of the sampler that this version does not know are left out."""
        assert read(*SAMPLES, {"end": {"sampler": {"missed": 2, "mood": "good"}}}).sampler.missed == 2

    def test_lines_of_one_process_add_up(self) -> None:
        """Later lines of a process add to earlier ones and overrule them."""
        later = {"process": {"id": 0, "name": "later", "end_s": 1.0}}
        (found,) = read(*SAMPLES, later, END).processes

        assert (found.pid, found.name, found.start_s, found.end_s) == (100, "later", 0.0, 1.0)

    def test_process_that_was_left_out(self) -> None:
        """A process that the sampler took back is not in the session."""
        found = read(*SAMPLES, {"process": {"id": 1}}, {"process": {"id": 1, "left_out": True}}, END).processes

        assert [process.id for process in found] == [0]

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
            session_from(io.BytesIO(data), "run.jsonl")

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
            session_from(io.BytesIO(b'{"format": "nncf-tools-journal", "ver'), "run.jsonl")


def test_start_moment() -> None:
    """The moment that times count from is kept both as UTC and on the monotonic clock."""
    of = read(END)

    assert (of.start.utc, of.start.monotonic_ns) == (STARTED["start"]["utc"], 5)


def per_process(*lines: object, **plan: object) -> Session:
    """Return the session of a journal with two processes and their RSS over time."""
    second = {"process": {"id": 1, "pid": 101, "parent": 0, "name": "child", "start_s": 0.1}}
    return read(second, *lines, END, first=header(plan={**header()["plan"], "per_process": True, **plan}))


def series_of(of: Session) -> list[tuple[list[float], list[int]] | None]:
    """Return times and RSS of each process."""
    return [process.series and (process.series.time_s, process.series.rss) for process in of.processes]


class TestEachProcess:
    def test_series(self) -> None:
        """Every line of RSS by process belongs to the sample before it, and to the processes that it names."""
        of = per_process(
            [0, 10], {"each": {"0": 10}}, [0.5, 30], {"each": {"0": 20, "1": 10}}, [1, 5], {"each": {"1": 5}}
        )

        assert series_of(of) == [([0, 0.5], [10, 20]), ([0.5, 1], [10, 5])]

    def test_sample_without_processes(self) -> None:
        """A sample in which no process had memory is none of any process."""
        of = per_process([0, 10], {"each": {"0": 10}}, [0.5, None], [1, 7], {"each": {"0": 7}})

        assert series_of(of) == [([0, 1], [10, 7]), None]

    def test_other_lines_in_between(self) -> None:
        """What is told between a sample and its processes does not part them."""
        of = per_process([0, 10], {"warning": "look"}, {"process": {"id": 1, "name": "b"}}, {"each": {"1": 9}})

        assert series_of(of) == [None, ([0], [9])]

    def test_process_that_nobody_told(self) -> None:
        """RSS of a process that has no other line is left out."""
        of = per_process([0, 10], {"each": {"0": 4, "9": 6}})

        assert series_of(of) == [([0], [4]), None]

    @pytest.mark.parametrize(
        "line",
        [
            b'{"each": {"0": 1\n',
            b'{"each": {"x": 1}}\n',
            b'{"each": {"0": "much"}}\n',
            b'{"each": {"0": 1, "1": null}}\n',
            b'{"each": [1]}\n',
            b'{"each": 5}\n',
        ],
        ids=repr,
    )
    def test_damaged_line(self, line: bytes) -> None:
        """A line that cannot be read costs itself only, and is counted."""
        of = per_process([0, 10], {"each": {"0": 10}}, [0.5, 30], line, [1, 5], {"each": {"0": 5}})

        assert series_of(of) == [([0, 1], [10, 5]), None]
        assert of.warnings == ["1 line of the journal could not be read: line 8"]
        assert list(of.samples["rss"]) == [10, 30, 5]

    def test_before_the_first_sample(self) -> None:
        """A line of processes without a sample has no time, and counts as damaged."""
        of = per_process({"each": {"0": 10}}, [0, 10])

        assert (series_of(of), len(of.warnings)) == ([None, None], 1)

    def test_of_a_chunk(self) -> None:
        """In a long recording, too, times are those of the samples."""
        lines: list[object] = []
        for place in range(11_000):
            lines += [[place / 8, place], {"each": {"0": place}}]
        ((times, rss), _) = series_of(per_process(*lines))

        assert times == [place / 8 for place in range(11_000)]
        assert rss == list(range(11_000))


def walk(length: int) -> list[list[float | None]]:
    """Return samples of RSS and, seldom, PSS, each with its CPU time."""
    chance = random.Random(7)  # noqa: S311 — the same each time
    level = 10**9
    rows: list[list[float | None]] = []
    for place in range(length):
        level += chance.randint(-(10**6), 10**6)
        rows.append([round(place * 0.1, 6), level, level // 2 if chance.random() < 0.05 else None, place / 100])
    return rows


def thinned(rows: list[list[float | None]], limit: int) -> list[list[float | None]]:
    """Return the samples that a sampler writes of these, of which at most ``limit`` are written as they are."""
    written: list[list[float | None]] = []
    thinner = Thinner(limit, lambda row: written.append([row[0], *row[1]]))
    thinner.gauges = (0, 1)
    for time_s, *values in rows:
        assert time_s is not None
        thinner.add((time_s, values, {}))
    thinner.flush()
    return written


def merged(length: int, limit: int, *more: object, **end: object) -> Session:
    """Return the session of a long recording of which at most ``limit`` rows are written as they are."""
    columns = ["rss", "pss", "cpu_user"]
    plan = {**header()["plan"], "columns": columns, "max_samples": limit}
    last = {"end": {"duration_s": length / 10, "totals": {"cpu_user": 99.5}, "sampler": {"taken": length, **end}}}
    return read(*thinned(walk(length), limit), *more, last, first=header(columns, plan=plan))


class TestMerging:
    """Recordings of more samples than the sampler writes as they are."""

    @pytest.mark.parametrize("limit", [5_000, 5_001])
    def test_up_to_the_limit(self, limit: int) -> None:
        """Up to the limit nothing is merged and nothing said."""
        of = merged(5_000, limit)

        assert (len(of.samples), of.warnings, of.sampler.merged_s) == (5_000, [], None)

    def test_peaks_are_exact(self) -> None:
        """Peaks are those of all samples, and their moments are as exact as the samples around them."""
        of, whole = merged(5_000, 300), merged(5_000, 5_000)
        assert of.sampler.merged_s is not None

        for name, peak in of.peaks.items():
            assert (peak.sampled, peak.low) == (whole.peaks[name].sampled, whole.peaks[name].low)
            assert peak.at_s == pytest.approx(whole.peaks[name].at_s, abs=of.sampler.merged_s)

    def test_lowest_is_exact(self) -> None:
        """So are the smallest values, also of what was seldom known."""
        of, whole = merged(5_000, 300).samples, merged(5_000, 5_000).samples

        for name in ("rss", "pss"):
            assert min(known(of[name])) == min(known(whole[name]))

    def test_rows_are_true(self) -> None:
        """Every row that is left is one that was taken, with all its values, and the last is among them."""
        taken = {row[0]: row[1:] for row in walk(5_000)}
        of = merged(5_000, 300).samples
        rows = zip(*(of[name] for name in ("rss", "pss", "cpu_user")), strict=True)
        left = [[None if isnan(value) else value for value in row] for row in rows]

        assert left == [taken[time_s] for time_s in of.time_s]
        assert of.time_s[-1] == 499.9

    def test_totals_are_of_the_end(self) -> None:
        """Totals and duration do not depend on what was merged."""
        of = merged(5_000, 300)

        assert (of.totals, of.duration_s) == ({"cpu_user": 99.5}, 500.0)

    def test_warning(self) -> None:
        """The session says how many were taken, how many are left, and what that means."""
        of = merged(5_000, 300)
        (warning,) = of.warnings

        assert warning == (
            f"5,000 samples were taken and neighbours merged into {len(of.samples)}, which keep the smallest and the "
            f"largest values: averages count only the remaining samples"
        )

    def test_distance_of_what_is_left(self) -> None:
        """How far apart rows are is known, so that what is drawn has no gaps: hardly any distance is longer."""
        of = merged(5_000, 300)
        distances = [after - before for before, after in pairwise(of.samples.time_s)]
        assert of.sampler.merged_s is not None

        assert sum(distance > of.sampler.merged_s for distance in distances) <= len(distances) / 100
        assert 8 * 0.1 < of.sampler.merged_s < 5_000 / 20 * 0.1

    def test_merged_by_the_sampler_already(self) -> None:
        """Where the journal has fewer samples than were taken, the session says so as well."""
        of = merged(200, 300, taken=5_000)

        assert (len(of.samples), of.sampler.taken) == (200, 5_000)
        assert of.sampler.merged_s == pytest.approx(0.1)
        assert of.warnings[0].startswith("5,000 samples were taken and neighbours merged into 200, which keep")

    def test_damage_is_no_merging(self) -> None:
        """A sample that cannot be read is damage, and not taken for one that was merged."""
        of = merged(200, 300, b"[20,1\n", taken=201)

        assert (of.sampler.merged_s, len(of.warnings)) == (None, 1)
        assert "could not be read" in of.warnings[0]

    def test_unfinished(self) -> None:
        """Of a recording that was killed it is not known how many were taken, but that its last ones are far apart."""
        plan = {**header()["plan"], "max_samples": 100}
        of = read(*([row[0], row[1]] for row in thinned(walk(1_000), 100)), first=header(plan=plan))
        assert of.sampler.merged_s is not None

        assert (100 < len(of.samples) < 200, of.finished, of.warnings) == (True, False, [])
        assert of.sampler.merged_s > 0.8


def test_rises() -> None:
    """A rise of a high-water mark belongs to its process, whose mark is at least that."""
    rise = {"id": 0, "from_s": 0.25, "to_s": 0.5, "high_water_mark": 900, "others": 50, "others_around": 60}
    of = read(journal([0.0, 1], {"rise": rise}, [0.5, 2]))

    assert of.processes[0].rises == [Rise(from_s=0.25, to_s=0.5, high_water_mark=900, others=50, others_around=60)]
    assert of.processes[0].high_water_mark == 900


def test_limit_reached() -> None:
    """The first sample above the limit is in the session."""
    reached = {"at_s": 0.5, "rss": 9, "limit": 8, "action": "kill"}

    assert read(journal([0.5, 9], {"limit_reached": reached})).limit_reached == LimitReached(**reached)


class TestDamagedTimes:
    def test_rows_that_go_back(self) -> None:
        """Rows whose time goes back are left out, and a warning counts them."""
        values, warnings = bad_lines([0, 10], [1, 20], [0.5, 99], [2, 30])

        assert values == [10, 20, 30]
        assert warnings[0] == "1 samples of the journal were left out: their time goes back"

    def test_a_row_far_ahead(self) -> None:
        """One row far ahead of all others is left out, not the others."""
        assert bad_lines([0, 10], [900, 99], [1, 20], [2, 30])[0] == [10, 20, 30]

    def test_processes_that_go_back(self) -> None:
        """The RSS of a process has the times of its samples, in order."""
        each = {"each": {"0": 5}}
        of = read([0, 10], each, [900, 99], each, [1, 20], each, [2, 30], each, END)

        assert of.processes[0].series is not None
        assert of.processes[0].series.time_s == [0, 1, 2]
        assert len(of.processes[0].series.rss) == 3


START = Start(monotonic_ns=1_000_000_000)
LINES: list[dict[str, object]] = [
    {"helper": {"pid": 5, "t_ns": 1_000_000_000, "missing": None, "share": 0.01, "least_s": 0.5}},
    {"process": {"number": 0, "pid": 77, "t_ns": 1_100_000_000, "inherited": 0}},
    {"frame": [0, "<module>", "/run.py", 9]},
    {"frame": [1, "load", "/run.py", 4]},
    {"stack": [0, [0, 1]]},
    {"rss": {"process": 0, "t_ns": [1_100_000_000, 1_500_000_000], "rss": [0, 4096], "apart_ns": [0, 20_000_000]}},
    {"faults": {"process": 0, "t_ns": 1_500_000_000, "threads": {"77": 3, "78": 2}, "lost": 1}},
    {
        "window": {
            "process": 0,
            "t_ns": [1_200_000_000, 1_600_000_000, 1_700_000_000],
            "threads": {"77": [[1_200_000_000, 0], [1_600_000_000, None]]},
        }
    },
    {"mappings": {"t_ns": 1_500_000_000, "total": 9, "processes": [[0, [["file", "/m", [9, 1, 2, 3, 3, 4]]]]]}},
    {"end": {"cpu_s": 0.25, "readings": 50, "failed": 1}},
]


def from_log(lines: list[dict[str, object]], *processes: Process, redact: tuple[str, ...] = ()) -> Snapshots:
    """Return what a log with these lines says."""
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    found = snapshots_from(data, START, processes, redact)
    assert found is not None
    return found


def test_all_lines() -> None:
    """Times are seconds since the start; frames, stacks, windows, page faults and mappings are there."""
    found = from_log(LINES, Process(id=3, pid=77, start_s=0.0, end_s=2.0))
    (watched,) = found.processes
    (moment,) = found.mappings

    assert found.frames == [Frame("<module>", "/run.py", 9), Frame("load", "/run.py", 4)]
    assert found.stacks == [[0, 1]]
    assert (watched.process, watched.pid, watched.time_s, watched.rss) == (3, 77, [0.1, 0.5], [0, 4096])
    assert watched.apart_s == [0.0, 0.02]
    assert watched.faults == [PageFaults(0.5, [(77, 3), (78, 2)], 1)]
    assert watched.windows == [
        StackWindow(time_s=[0.2, 0.6, 0.7], threads=[ThreadStacks(77, [0.2, 0.6], [0, None], [0, 0], [0, 0])])
    ]
    assert moment.processes[0].process == 3
    assert moment.processes[0].groups[0].clean == 4
    assert (found.cpu_s, found.failed, found.missing) == (0.25, 1, None)


def test_user_of_a_process() -> None:
    """A log says whose files a process opened; logs of earlier versions do not."""
    introduced = {"process": {"number": 0, "pid": 77, "t_ns": 1_100_000_000, "inherited": 0, "user": 7}}

    assert from_log([LINES[0], introduced]).processes[0].user == 7
    assert from_log(LINES).processes[0].user is None


def with_points(*of: dict[str, object]) -> Snapshots:
    """Return what a log with these lines of RSS says."""
    return from_log([*LINES[:2], *({"rss": {"process": 0, **points}} for points in of), LINES[-1]])


def test_shared_pages() -> None:
    """The bytes of files are those of the moments of RSS; in the log of an earlier version, nobody knows them."""
    earlier = {"t_ns": [1_100_000_000, 1_500_000_000], "rss": [0, 4096], "apart_ns": [0, 0]}
    later = {"t_ns": [1_600_000_000], "rss": [8192], "apart_ns": [0], "shared": [1024]}

    assert with_points({**earlier, "shared": [0, 2048]}, later).processes[0].shared == [0, 2048, 1024]
    assert with_points(earlier).processes[0].shared == []
    assert with_points(earlier, later).processes[0].shared == [0, 0, 1024]


def test_reused_pid() -> None:
    """A process of the session is the one that lived then, not an earlier one with its PID."""
    earlier = Process(id=1, pid=77, start_s=-9.0, end_s=-5.0)

    assert from_log(LINES, earlier).processes[0].process is None


def test_many_processes() -> None:
    """The cost of a process in the log does not rise with the number of processes."""

    def cost_s(count: int) -> float:
        lines = [{"process": {"number": pid, "pid": pid, "t_ns": 5, "inherited": 0}} for pid in range(count)]
        begun_s = time.process_time()
        found = from_log([*LINES[:1], *lines], *(Process(id=pid, pid=pid, start_s=0.0) for pid in range(count)))
        assert found.processes[-1].process == count - 1
        return time.process_time() - begun_s

    few, many = (min(cost_s(count) for _ in range(3)) for count in (1_000, 8_000))

    assert many < 20 * few


def test_cut_off() -> None:
    """A log that a kill cut off says what it has; its cost is unknown."""
    data = b"".join(json.dumps(line).encode() + b"\n" for line in LINES[:7])[:-10]
    found = snapshots_from(data, START, [], ())

    assert found is not None
    assert found.cpu_s is None
    assert len(found.processes[0].time_s) == 2


@pytest.mark.parametrize(
    "line",
    [
        {"faults": {"process": 9, "t_ns": 1, "threads": {}, "lost": 0}},
        {"window": {"process": 0, "t_ns": [1, 2], "threads": {"77": [[1, 5]]}}},
        {"window": 3},
        {"native": 9},
        {"mappings": {"t_ns": 1, "total": 9, "processes": [[0, [["file", "/m", [9]]]]]}},
        {"rss": {"process": 0}},
        {"unknown": 1},
    ],
)
def test_damaged_line(line: dict[str, object]) -> None:
    """A line that makes no sense is left out."""
    assert from_log([*LINES[:6], line, *LINES[6:]]).processes[0].windows[-1].to_s == 0.7


def test_lost_frame() -> None:
    """After a lost frame nothing more is read, because later stacks may mean another one."""
    found = from_log([line for line in LINES if line.get("frame", [1])[0] != 0])  # type: ignore[index]

    assert found.frames == []
    assert found.processes[0].windows == []
    assert found.missing == "the log of the helper is damaged (number 0 is missing), after 0.0 s"


def test_line_tables_have_a_common_bound() -> None:
    """A table beyond 4 MiB of all of them is not decoded: its frames have the first line of their function."""
    table = base64.b64encode(b"\xd8" * (1 << 20)).decode()
    lines: list[dict[str, object]] = [{"table": [number, 13, table]} for number in range(5)]
    lines += [{"frame": [number, "f", "/f.py", 7, number, 10]} for number in range(5)]
    found = from_log([LINES[0], *lines])

    assert [frame.line for frame in found.frames] == [13, 13, 13, 13, 7]


def test_line_tables_without_frames_are_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table is decoded at its first use, and once."""
    decoded: list[bytes] = []
    located = session_snapshots._located_steps

    def noted(table: bytes) -> list[int]:
        decoded.append(table)
        return located(table)

    monkeypatch.setattr(session_snapshots, "_located_steps", noted)
    tables = [b"\xd8", b"\xe0"]
    lines: list[dict[str, object]] = [
        {"table": [number, 13, base64.b64encode(table).decode()]} for number, table in enumerate(tables)
    ]
    lines += [{"frame": [number, "f", "/f.py", 7, 1, 0]} for number in range(3)]
    found = from_log([LINES[0], *lines])

    assert [frame.line for frame in found.frames] == [9, 9, 9]
    assert decoded == [b"\xe0"]


def test_secret_in_the_command() -> None:
    """Secrets in the command, and in the command lines of its processes, are hidden; the journal has them as typed."""
    words = ["work", "--api-key=hush", "--lr", "0.1"]
    child = {"process": {"id": 1, "pid": 101, "parent": 0, "name": "child", "command": words}}
    of = read(child, [0, 10], END, first=header(command=words))

    assert of.command == of.processes[1].command == ["work", "--api-key=***", "--lr", "0.1"]


def test_frames_of_the_hook() -> None:
    """Frames of our own hook are left out."""
    ours = {"frame": [1, "wrapper", "<frozen importlib._bootstrap nncf-tools>", 1]}

    assert from_log([*LINES[:3], ours, *LINES[4:]]).stacks == [[0]]


def test_secrets() -> None:
    """What --redact hides is hidden in the paths of files."""
    found = from_log(LINES, redact=("run",))

    assert "run" not in found.frames[0].file


@pytest.mark.parametrize(
    ("problem", "missing"),
    [
        ("refused", "the kernel does not allow reading the stacks of process 77"),
        ("no_python", "no program whose memory grew runs Python: process 77, for instance"),
        ("odd", "the stacks of process 77 could not be read: odd"),
    ],
)
def test_problem(problem: str, missing: str) -> None:
    """The first problem says why stacks are missing."""
    line = {"problem": {"process": 0, "text": problem}}

    assert from_log([*LINES[:2], line]).missing == missing


def test_no_log() -> None:
    """Without a log, or a clock to read it by, there is nothing."""
    assert snapshots_from(b"", START, [], ()) is None
    assert snapshots_from(b"{}\n", Start(), [], ()) is None


def test_helper_that_ended_early() -> None:
    """A log without its last line says when the helper ended."""
    assert from_log(LINES[:-1]).missing == "the helper process ended early, after 0.5 s"


def test_helper_that_failed() -> None:
    """An error of ours in the helper is named."""
    assert from_log([*LINES[:-1], {"failure": "KeyError: 5"}]).missing == "the helper process failed (KeyError: 5)"


def test_before_the_start() -> None:
    """What the helper saw before the recording began is at its start."""
    line = {"rss": {"process": 0, "t_ns": [900_000_000, 1_200_000_000], "rss": [7, 8], "apart_ns": [0, 0]}}

    assert from_log([*LINES[:2], line]).processes[0].time_s == [0.0, 0.2]


def watched_with(*threads: ThreadStacks) -> WatchedProcess:
    """Return a process with a window of these threads."""
    return WatchedProcess(pid=1, windows=[StackWindow(time_s=[0.0, 2.0], threads=list(threads))])


WRONG: dict[str, Snapshots] = {
    "a frame": Snapshots(stacks=[[0]]),
    "a frame that is negative": Snapshots(frames=[Frame("f", "/a.py", 1)], stacks=[[-1]]),
    "a stack": Snapshots(processes=[watched_with(ThreadStacks(1, [0.0], [0]))]),
    "points": Snapshots(processes=[WatchedProcess(pid=1, time_s=[0.0], rss=[])]),
    "shared": Snapshots(processes=[WatchedProcess(pid=1, time_s=[0.0], rss=[1], apart_s=[0.0], shared=[1, 1])]),
    "apart": Snapshots(processes=[WatchedProcess(pid=1, time_s=[0.0], rss=[1], apart_s=[-0.5])]),
    "times": Snapshots(processes=[WatchedProcess(pid=1, time_s=[1.0, 0.5], rss=[1, 1])]),
    "changes": Snapshots(processes=[watched_with(ThreadStacks(1, [1.0, 0.5], [None, None]))]),
    "windows": Snapshots(processes=[WatchedProcess(pid=1, windows=[StackWindow(time_s=[1.0, 0.5])])]),
    "no reading": Snapshots(processes=[WatchedProcess(pid=1, windows=[StackWindow(time_s=[])])]),
    "page faults": Snapshots(processes=[WatchedProcess(pid=1, faults=[PageFaults(1.0, []), PageFaults(0.5, [])])]),
    "depth": Snapshots(frames=[Frame("f", "/a.py", 1)], stacks=[[0] * 5_000]),
}


@pytest.mark.parametrize("name", WRONG)
def test_impossible_snapshots(name: str, tmp_path: pathlib.Path) -> None:
    """A session whose snapshots make no sense is refused, with the place."""
    path = session({"rss": [1, 2, 3]}, snapshots=WRONG[name]).save(tmp_path / "run.json")

    with pytest.raises(SessionFileError, match=r"at `\$\.snapshots\."):
        nncftools_Session.load(path)


def fields(*lines: Any) -> dict[str, Any]:  # noqa: ANN401 — lines of a journal
    """Return the fields of a session that lines of a journal make."""
    first = header()
    first["plan"]["redact"] = ["hush"]
    session = Session.of(session_from(io.BytesIO(journal(*lines, first=first)), "run"))
    names = ("memory_limits", "control_groups", "oom_kills", "file_systems", "floor", "files_read")
    return {name: getattr(session, name) for name in names}


def test_nothing() -> None:
    """A journal without such lines says nothing of limits, and the floor is unknown."""
    assert fields({"warning": "other"}) == {
        "memory_limits": [],
        "control_groups": [],
        "oom_kills": [],
        "file_systems": [],
        "floor": None,
        "files_read": [],
    }


def test_limits_groups_and_kills() -> None:
    """Each line of a limit, a group or a kill is kept."""
    limit = {"kind": "control group", "size": 5, "set_by": "/cg/memory.max", "process": 2}
    kills = [{"group": "/cg", "from_s": at_s, "to_s": at_s + 1, "count": 1} for at_s in (1, 2)]
    group = {"folder": "/cg", "oom_kills": 3, "process": 2}
    found = fields({"memory_limit": limit}, {"group": group}, *({"oom_kills": one} for one in kills))

    assert found["memory_limits"] == [MemoryLimit(**limit)]
    assert found["control_groups"] == [ControlGroup(folder="/cg", oom_kills=3)]
    assert found["oom_kills"] == [OomKills(**one) for one in kills]


def test_last_line_counts() -> None:
    """A later line of the same file system, and of the floor, replaces the earlier one."""
    rooms = [{"role": role, "size": 9, "lowest": lowest} for role, lowest in (("cwd", 5), ("TMPDIR", 1), ("cwd", 4))]
    floors = [{"size": size, "at_s": size / 2, "mapped": 3} for size in (10, 20)]
    found = fields(*({"file_system": one} for one in rooms), *({"floor": one} for one in floors))

    assert found["file_systems"] == [
        FileSystem(role="cwd", size=9, lowest=4),
        FileSystem(role="TMPDIR", size=9, lowest=1),
    ]
    assert found["floor"] == Floor(size=20, at_s=10, mapped=3)


def test_files() -> None:
    """A file that is named twice counts once, with its largest size; secrets in paths are hidden."""
    found = fields(
        {"files_read": {"files": [("/a", 5), ("/hush/b", 1)]}},
        {"files_read": {"files": [("/a", 7)]}},
        {"files_read": {"files": [("/a", 6)]}},
    )

    assert found["files_read"] == [FileRead(path="/a", size=7), FileRead(path="/***/b", size=1)]


@pytest.mark.parametrize("line", [{"floor": {"size": "much"}}, {"memory_limit": {}}, {"file_system": {"role": 1}}])
def test_bad_line(line: dict[str, Any]) -> None:
    """A line of another form is left out and counted."""
    session = Session.of(session_from(io.BytesIO(journal(line)), "run"))

    assert "1 line of the journal could not be read: line 4" in session.warnings


def column(*values: float | None) -> array[float]:
    """Return values as a session holds them."""
    return array("d", (nan if value is None else value for value in values))


def kept_rows_walk(seed: int, length: int, known: float = 1.0) -> array[float]:
    """Return a gauge that wanders and of which a part is known."""
    chance = random.Random(seed)  # noqa: S311 — the same each time
    level = 5_000.0
    values = array("d")
    for _ in range(length):
        level += chance.randint(-50, 50)
        values.append(level if chance.random() < known else nan)
    return values


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([3, 1, 2, 9, 5], [1, 3, 4], id="smallest, largest, last"),
        pytest.param([1, 2, 3, 4, 5], [0, 4], id="rising"),
        pytest.param([5, 4, 3, 2, 1], [0, 4], id="falling"),
        pytest.param([7, 7, 7, 7, 7], [0, 4], id="the same: the first, and the last"),
        pytest.param([None, 1, None, 9, None], [1, 3, 4], id="some unknown"),
        pytest.param([None, 4, None, None, None], [1, 4], id="one known"),
        pytest.param([None] * 5, [4], id="nothing known"),
        pytest.param([0, 3, 5, 0, 4], [0, 2, 4], id="zero is a value"),
    ],
)
def test_one_bucket(values: list[float | None], expected: list[int]) -> None:
    """Of a bucket the rows with the smallest and the largest known value are kept, and the last."""
    assert kept_rows([column(*values)], 5, 3) == expected


def test_several_gauges() -> None:
    """Every gauge has its own extremes, and a row that holds several is kept once."""
    first, second = column(9, 1, 5, 5, 5, 5), column(0, 9, 5, 5, 1, 5)

    assert kept_rows([first, second], 6, 5) == [0, 1, 5]


def test_several_buckets() -> None:
    """Buckets are of equal length, and each keeps its own extremes."""
    assert kept_rows([column(5, 1, 9, 5, 2, 8, 5, 5)], 8, 6) == [1, 2, 3, 4, 5, 7]


def test_without_gauges() -> None:
    """When no memory was recorded, rows at equal distances are kept, the last among them."""
    assert kept_rows([], 10, 5) == [1, 3, 5, 7, 9]


def test_more_buckets_than_rows() -> None:
    """A limit beyond the number of rows keeps each row once."""
    assert kept_rows([column(1, 2, 3)], 3, 1_000) == [0, 1, 2]


@pytest.mark.parametrize("limit", [1, 2])
def test_limit_below_one_bucket(limit: int) -> None:
    """However small the limit is, the extremes and the last row are kept."""
    assert kept_rows([column(3, 1, 9, 5)], 4, limit) == [1, 2, 3]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("rows", "limit"), [(1_000, 100), (5_000, 500), (997, 31), (5_000, 9)])
class TestRandomWalk:
    """A gauge that is always known, one that seldom is, and one that never is."""

    def kept(self, seed: int, rows: int, limit: int) -> tuple[list[array[float]], list[int]]:
        """Return the gauges and the rows that are kept of them."""
        gauges = [kept_rows_walk(seed, rows), kept_rows_walk(seed + 100, rows, known=0.05), column(*[None] * rows)]
        return gauges, kept_rows(gauges, rows, limit)

    def test_no_extreme_is_lost(self, seed: int, rows: int, limit: int) -> None:
        """The smallest and the largest known value of every gauge are kept."""
        gauges, kept = self.kept(seed, rows, limit)

        for gauge in gauges[:2]:
            known = [value for value in gauge if not isnan(value)]
            left = [gauge[row] for row in kept if not isnan(gauge[row])]
            assert (min(left), max(left)) == (min(known), max(known))

    def test_in_time_order(self, seed: int, rows: int, limit: int) -> None:
        """Every row is kept once at most and in its place, and the last is kept."""
        _, kept = self.kept(seed, rows, limit)

        assert all(before < after for before, after in pairwise(kept))
        assert kept[-1] == rows - 1

    def test_number(self, seed: int, rows: int, limit: int) -> None:
        """No more rows are kept than the limit, and not far fewer."""
        _, kept = self.kept(seed, rows, limit)

        assert limit / 4 <= len(kept) <= limit

    def test_no_long_gap(self, seed: int, rows: int, limit: int) -> None:
        """What is kept covers the whole recording: no gap is longer than two buckets."""
        _, kept = self.kept(seed, rows, limit)
        bucket = rows / max(1, limit // 7)

        assert max(after - before for before, after in pairwise([-1, *kept])) <= 2 * bucket + 1
