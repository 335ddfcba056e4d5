"""What the helper's log says, whole or damaged."""

from __future__ import annotations

import base64
import io
import json
import random
from array import array
from itertools import pairwise
from math import isnan
from pathlib import Path

import pytest

from nncftools import Session as nncftools_Session
from nncftools.analysis.session import Session
from nncftools.errors import SessionFileError
from nncftools.journal.writing import Thinner
from nncftools.session.model import (
    Exit,
    FileRead,
    Process,
    Snapshots,
    Start,
)
from nncftools.session.recording import StarterFacts, session_from
from nncftools.session.samples import drop_unknown, select_rows
from nncftools.session.snapshots import snapshots_from
from tests.made_up import END, cases, header, journal, session

SAMPLES: tuple[object, ...] = ([0, 10], [0.5, 30], [1, 20])


def read(*lines: object, first: object = None) -> Session:
    """Return the session of a journal."""
    return Session.of(session_from(io.BytesIO(journal(*lines, first=first)), "run.jsonl"))


def bad_lines(*lines: object) -> tuple[list[float], list[str]]:
    """Return the RSS and the warnings of a finished journal."""
    of = read(*lines, END)
    return list(of.samples["rss"]), of.warnings


class TestFinished:
    @pytest.mark.parametrize(
        "user, system, expected",
        [(0.375, 0.125, (0.375, 0.125)), (0.3, 0.1, (0.33, 0.11)), (0.0, 0.0, (0.44, 0.0)), (0.3, None, (0.3, None))],
        ids=["above", "below", "less than a tick", "unknown"],
    )
    def test_cpu_time_of_all_processes(
        self, user: float, system: float | None, expected: tuple[float, float | None]
    ) -> None:
        """The total is at least the sum of the processes; user and system time keep their ratio."""
        spent = [{"process": {"id": number, "cpu_s": cpu_s}} for number, cpu_s in ((0, 0.4), (1, 0.04))]
        end = {"end": {**END["end"], "totals": {"cpu_user": user, "cpu_system": system}}}
        of = read(*spent, end, first=header(["cpu_user", "cpu_system"]))

        assert tuple(of.totals.values()) == pytest.approx(expected)

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

        assert of.warnings == ["7 samples are missing from the journal: the file was truncated or edited"]
        assert of.sampler.merged_s is None


class TestUnfinished:
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
            b"[1,3],[4,5]\n",
            b'{"each": {"0": 1\n',
            b'{"each": {"x": 1}}\n',
            b'{"each": {"0": "much"}}\n',
            b'{"each": [1]}\n',
            b"[0.5,NaN]\n",
            b"[0.5,\xff]\n",
            b"[1e300,1]\n",
            b"[0.5,1e300]\n",
            b"[-0.5,1]\n",
            b"nonsense\n",
            b'{"start":{}}\n',
            b"[" * 5000 + b"\n",
            b'{"warning":' + b"[" * 5000 + b"\n",
            b'{"process": {"id": 0, "peak_rss": %s}}\n' % (b"9" * 400),
            b'{"process": {"id": 0, "pid": 99999999999999999999}}\n',
            b'{"process": {"id": 0, "start_s": 1e300}}\n',
            b'{"rise": {"id": 0, "from_s": 2, "to_s": 1, "high_water_mark": 1, "others": 0, "others_around": 0}}\n',
            b'{"floor": {"size": "much"}}\n',
            b'{"memory_limit": {}}\n',
            b'{"file_system": {"role": 1}}\n',
            b'{"devices": {"at_s": 0.2, "values": {"device_memory@nvidia0": -1}}}\n',
            b'{"devices": {"at_s": 0.2, "values": {"device_memory@nvidia0": "5"}}}\n',
            b'{"devices": {"at_s": 0.2, "values": {"rss": 5}}}\n',
            b'{"devices": {"at_s": 0.2, "values": {%s"a": 1}}}\n' % b"".join(b'"%d": 1, ' % at for at in range(501)),
        ],
        ids=lambda line: repr(line[:60]),
    )
    def test_damaged_line_is_left_out_and_counted(self, line: bytes) -> None:
        """A line that cannot be read, or says what cannot be, costs itself only, and the reader is told."""
        of = read([0, 10], line, [1, 20], END)
        warnings = of.warnings

        assert {name: list(of.samples[name]) for name in of.samples.metrics} == {"rss": [10, 20]}
        assert len(warnings) == 1
        assert "of the journal could not be read" in warnings[0]
        assert warnings[0].endswith("line 5")

    def test_earliest_damage_is_named(self) -> None:
        """The line that is named is the first in the file, also when samples are read after the events."""
        _, warnings = bad_lines([0, 10], b"[1\n", [0.5, 20], b"{\n")

        assert warnings == ["2 lines of the journal could not be read, the first is line 5"]


def per_process(*lines: object, **plan: object) -> Session:
    """Return the session of a journal with two processes and their RSS over time."""
    second = {"process": {"id": 1, "pid": 101, "parent": 0, "name": "child", "start_s": 0.1}}
    return read(second, *lines, END, first=header(plan={**header()["plan"], "per_process": True, **plan}))


def series_of(of: Session) -> list[tuple[list[float], list[int]] | None]:
    """Return times and RSS of each process."""
    return [process.series and (process.series.time_s, process.series.rss) for process in of.processes]


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


def test_merged() -> None:
    """Of a long recording, rows with the smallest and largest values remain, and the last; peaks are exact."""
    of, whole = merged(5_000, 300), merged(5_000, 5_000)
    taken = {row[0]: row[1:] for row in walk(5_000)}
    rows = zip(*(of.samples[name] for name in ("rss", "pss", "cpu_user")), strict=True)
    distances = [after - before for before, after in pairwise(of.samples.time_s)]
    apart_s = of.sampler.merged_s
    assert apart_s is not None

    assert [[None if isnan(value) else value for value in row] for row in rows] == [
        taken[at] for at in of.samples.time_s
    ]
    assert (of.totals, of.duration_s, of.samples.time_s[-1]) == ({"cpu_user": 99.5}, 500.0, 499.9)
    for name in ("rss", "pss"):
        assert of.peaks[name].sampled == whole.peaks[name].sampled
        assert of.peaks[name].at_s == pytest.approx(whole.peaks[name].at_s, abs=apart_s)
        assert min(drop_unknown(of.samples[name])) == min(drop_unknown(whole.samples[name]))
    assert f"5,000 samples were taken and merged into {len(of.samples)}:" in of.warnings[0]
    assert 8 * 0.1 < apart_s < 5_000 / 20 * 0.1
    assert sum(distance > apart_s for distance in distances) <= len(distances) / 100


def test_times_that_go_back() -> None:
    """Rows whose time goes back are left out, and a warning counts them; one row far ahead costs not the others."""
    assert bad_lines([0, 10], [1, 20], [0.5, 99], [2, 30]) == (
        [10, 20, 30],
        ["1 samples of the journal were left out, because their times are not in order"],
    )
    each = {"each": {"0": 5}}
    of = read([0, 10], each, [900, 99], each, [1, 20], each, [2, 30], each, END)

    assert list(of.samples["rss"]) == [10, 20, 30]
    assert series_of(of) == [([0, 1, 2], [5, 5, 5])]


START = Start(monotonic_ns=1_000_000_000)
LINES = """\
{"helper": {"pid": 5, "t_ns": 1000000000, "missing": null, "share": 0.01, "least_s": 0.5}}
{"process": {"number": 0, "pid": 77, "t_ns": 1100000000, "inherited": 0}}
{"frame": [0, "<module>", "/run.py", 9]}
{"frame": [1, "load", "/run.py", 4]}
{"stack": [0, [0, 1]]}
{"rss": {"process": 0, "t_ns": [1100000000, 1500000000], "rss": [0, 4096], "apart_ns": [0, 20000000]}}
{"faults": {"process": 0, "t_ns": 1500000000, "threads": {"77": 3, "78": 2}, "lost": 1}}
{"window": {"process": 0, "t_ns": [1200000000, 1700000000], "threads": {"77": [[1200000000, 0], [1600000000, null]]}}}
{"mappings": {"t_ns": 1500000000, "total": 9, "processes": [[0, [["file", "/m", [9, 1, 2, 3, 3, 4]]]]]}}
{"end": {"cpu_s": 0.25, "readings": 50, "failed": 1}}
""".splitlines()
EARLIER = '{"rss": {"process": 0, "t_ns": [1100000000, 1500000000], "rss": [0, 4096], "apart_ns": [0, 0]}}'
SHARED = EARLIER.replace("}}", ', "shared": [0, 2048]}}')
LATER = '{"rss": {"process": 0, "t_ns": [1600000000], "rss": [8192], "apart_ns": [0], "shared": [1024]}}'


def from_log(lines: list[str], *processes: Process, redact: tuple[str, ...] = ()) -> Snapshots:
    """Return what a log with these lines says."""
    found = snapshots_from("".join(f"{line}\n" for line in lines).encode(), START, processes, redact)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "points, shared",
    [([SHARED, LATER], [0, 2048, 1024]), ([EARLIER], []), ([EARLIER, LATER], [0, 0, 1024])],
    ids=["this version", "earlier version", "both"],
)
def test_shared_pages(points: list[str], shared: list[int]) -> None:
    """The bytes of files are those of the moments of RSS; in the log of an earlier version, nobody knows them."""
    assert from_log([*LINES[:2], *points, LINES[-1]]).processes[0].shared == shared


def test_reused_pid() -> None:
    """A process of the session is the one that lived then, not an earlier one with its PID."""
    earlier = Process(id=1, pid=77, start_s=-9.0, end_s=-5.0)

    assert from_log(LINES, earlier).processes[0].process is None


@pytest.mark.parametrize(
    "line",
    [
        '{"faults": {"process": 9, "t_ns": 1, "threads": {}, "lost": 0}}',
        '{"window": {"process": 0, "t_ns": [1, 2], "threads": {"77": [[1, 5]]}}}',
        '{"window": 3}',
        '{"native": 9}',
        '{"mappings": {"t_ns": 1, "total": 9, "processes": [[0, [["file", "/m", [9]]]]]}}',
        '{"rss": {"process": 0}}',
        '{"unknown": 1}',
        '{"window": {"process',
    ],
)
def test_damaged_line_of_the_helper(line: str) -> None:
    """A line that makes no sense is left out."""
    assert from_log([*LINES[:6], line, *LINES[6:]]).processes[0].windows[-1].to_s == 0.7


def test_lost_frame() -> None:
    """After a lost frame nothing more is read, because later stacks may mean another one."""
    found = from_log([*LINES[:2], *LINES[3:]])

    assert found.frames == []
    assert found.processes[0].windows == []
    assert found.missing == "the log of the helper is damaged (number 0 is missing), after 0.0 s"


def test_line_tables_have_a_common_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table beyond 4 MiB of all of them is not decoded: its frames have the first line of their function."""
    monkeypatch.setattr("nncftools.session.snapshots.MOST_OF_TABLES", 4_000)
    table = base64.b64encode(b"\xd8" * 1_000).decode()
    lines = [f'{{"table": [{number}, 13, "{table}"]}}' for number in range(5)]
    lines += [f'{{"frame": [{number}, "f", "/f.py", 7, {number}, 10]}}' for number in range(5)]

    assert [frame.line for frame in from_log([LINES[0], *lines]).frames] == [13, 13, 13, 13, 7]


def test_secret_in_the_command() -> None:
    """Secrets in the command, and in the command lines of its processes, are hidden; the journal has them as typed."""
    words = ["work", "--api-key=hush", "--lr", "0.1"]
    child = {"process": {"id": 1, "pid": 101, "parent": 0, "name": "child", "command": words}}
    of = read(child, [0, 10], END, first=header(command=words))

    assert of.command == of.processes[1].command == ["work", "--api-key=***", "--lr", "0.1"]


def test_frames_of_the_hook() -> None:
    """Frames of our own hook are left out."""
    ours = '{"frame": [1, "wrapper", "<frozen importlib._bootstrap nncf-tools>", 1]}'

    assert from_log([*LINES[:3], ours, *LINES[4:]]).stacks == [[0]]


@pytest.mark.parametrize(
    "lines, missing",
    [
        (
            ['{"problem": {"process": 0, "text": "refused"}}'],
            "the kernel does not allow reading the stacks of process 77",
        ),
        (
            ['{"problem": {"process": 0, "text": "no_python"}}'],
            "memory grew only in programs that do not run Python, such as process 77",
        ),
        (['{"problem": {"process": 0, "text": "odd"}}'], "the stacks of process 77 could not be read: odd"),
        (LINES[2:-1], "the helper process ended early, after 0.5 s"),
        ([*LINES[2:-1], '{"failure": "KeyError: 5"}'], "the helper process failed (KeyError: 5)"),
    ],
    ids=["refused", "no Python", "odd", "ended early", "failed"],
)
def test_why_stacks_are_missing(lines: list[str], missing: str) -> None:
    """The first problem, or the end of the helper, says why stacks are missing."""
    assert from_log([*LINES[:2], *lines]).missing == missing


WRONG = """
a frame | {"stacks": [[0]]}
a frame of a loop | {"frames": [["f", "a", 1]], "loops": [1]}
a stack | {"processes": [{"pid": 1, "windows": [{"time_s": [0, 2], "threads": [[1, [0], [0]]]}]}]}
changes | {"processes": [{"pid": 1, "windows": [{"time_s": [0, 2], "threads": [[1, [1, 0], [null, null]]]}]}]}
points | {"processes": [{"pid": 1, "time_s": [0], "rss": []}]}
shared | {"processes": [{"pid": 1, "time_s": [0], "rss": [1], "apart_s": [0], "shared": [1, 1]}]}
times | {"processes": [{"pid": 1, "time_s": [1, 0.5], "rss": [1, 1]}]}
windows | {"processes": [{"pid": 1, "windows": [{"time_s": [1, 0.5]}]}]}
no reading | {"processes": [{"pid": 1, "windows": [{"time_s": []}]}]}
sources | {"sources": {"/mod.py": {"two": "x"}}}
page faults | {"processes": [{"pid": 1, "faults": [[1, []], [0.5, []]]}]}
"""


@pytest.mark.parametrize("text", cases(WRONG))
def test_impossible_snapshots(text: str, tmp_path: Path) -> None:
    """A session whose snapshots make no sense is refused, with the place."""
    path = session(snapshots=Snapshots()).save(tmp_path / "run.json")
    document = json.loads(path.read_text())
    document["snapshots"] |= json.loads(text)
    path.write_text(json.dumps(document))

    with pytest.raises(SessionFileError, match=r"`\$\.snapshots\."):
        nncftools_Session.load(path)


def test_files() -> None:
    """A file that is named twice counts once, with its largest size; secrets in paths are hidden."""
    first = header(plan={**header()["plan"], "redact": ["hush"]})
    lines = [{"files_read": {"files": files}} for files in ([("/a", 5), ("/hush/b", 1)], [("/a", 7)], [("/a", 6)])]

    assert read(*lines, first=first).files_read == [FileRead(path="/a", size=7), FileRead(path="/***/b", size=1)]


KEPT = {
    "smallest, largest, last": ("3 1 2 9 5", 3, "1 3 4"),
    "rising": ("1 2 3 4 5", 3, "0 4"),
    "equal": ("7 7 7 7 7", 3, "0 4"),
    "some unknown": ("nan 1 nan 9 nan", 3, "1 3 4"),
    "nothing known": ("nan nan nan nan nan", 3, "4"),
    "zero is a value": ("0 3 5 0 4", 3, "0 2 4"),
    "several gauges": ("9 1 5 5 5 5, 0 9 5 5 1 5", 5, "0 1 5"),
    "several buckets": ("5 1 9 5 2 8 5 5", 6, "1 2 3 4 5 7"),
    "more buckets than rows": ("1 2 3", 1_000, "0 1 2"),
    "a limit below one bucket": ("3 1 9 5", 1, "1 2 3"),
}
"""By case: the values of gauges, a limit, and the rows that are kept."""


@pytest.mark.parametrize("gauges, limit, expected", KEPT.values(), ids=KEPT)
def test_kept_rows(gauges: str, limit: int, expected: str) -> None:
    """Of a bucket the rows with the smallest and the largest known value of each gauge are kept, and the last."""
    columns = [array("d", map(float, gauge.split())) for gauge in gauges.split(", ")]

    assert select_rows(columns, len(columns[0]), limit) == [int(row) for row in expected.split()]
