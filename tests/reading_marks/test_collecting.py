from __future__ import annotations

import io
import json
import os
import pathlib
import sys
import time
from types import SimpleNamespace

import msgspec
import pytest

from nncftools.analysis.peaks import narrow
from nncftools.analysis.session import Session
from nncftools.errors import NncfToolsError
from nncftools.intake import Redaction
from nncftools.journal.reading import find_sidecar
from nncftools.reading_marks import entries
from nncftools.reading_marks.collecting import (
    add_enclosing,
    read_sidecar,
    size_of,
    take_log,
    take_own,
    take_sizes,
    write_sidecar,
)
from nncftools.reading_marks.entries import Entry
from nncftools.render.sentences import no_marks_reason
from nncftools.session.model import ExecLine, HeldLines, Mark, OwnMemory, Process, Rise, Snapshots, WatchedProcess
from tests.conftest import Run
from tests.made_up import MIB, mib, process, session

EXEC: ExecLine = {"id": 0, "from_s": 2.5, "to_s": 4.0}
RT_INFO = (
    '<nncf><version value="3.4.0" /><weight_compression><mode value="int4_sym" /><group_size value="64" />'
    '</weight_compression></nncf><optimum><optimum_version value="2.3.0" /></optimum>'
)


def run() -> Session:
    """Return a session of ten seconds that began at 5 ns on CLOCK_MONOTONIC."""
    return session(duration_s=10.0)


def log(*lines: dict[str, object] | str) -> io.BytesIO:
    """Return a marks log."""
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    return io.BytesIO(b"".join(text.encode() + b"\n" for text in texts))


def names(of: Session) -> list[tuple[str, int]]:
    """Return names and depths of a session's marks."""
    return [(mark.name, mark.depth) for mark in of.marks]


@pytest.mark.long
@pytest.mark.parametrize("is_moment", [True, False])
def test_cost_of_a_long_log(*, is_moment: bool) -> None:
    """A mark that is counted together with others costs little more than decoding its line."""
    read = ',"pid":1,"tid":1,"rss":20000000,"high_water_mark":21000000,"faults":3000,"descendants":[]'
    events = [""] if is_moment else ['"event":"begin",', '"event":"end",']
    lines = [
        f'{{{event}"op":{number},"name":"step","source":"api","t_ns":{1000 * number}{read}}}'
        for number in range(1, 50_000 // len(events) + 1)
        for event in events
    ]
    file, of = log(*lines), run()
    begun_s = time.process_time()
    for line in file:
        msgspec.json.decode(line, type=Entry)
    decoded_s = time.process_time()
    file.seek(0)
    take_log(of, file, "marks", Redaction())
    taken_s = time.process_time()

    assert sum(mark.count for mark in of.marks) == 50_000 // len(events)
    assert taken_s - decoded_s < 28 * (decoded_s - begun_s)


def test_line_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that is longer than any mark is read in parts, each of which counts as unreadable."""
    monkeypatch.setattr(entries, "_LONGEST_LINE", 1_000)
    of = run()
    take_log(of, io.BytesIO(b"x" * 2_500 + b'\n{"name":"a","start_s":1}\n'), "marks", Redaction())

    assert names(of) == [("a", 0)]
    assert of.warnings == [
        "3 marks could not be read, the first is line 1 (JSON is malformed: invalid character (byte 0)) of marks"
    ]


class TestLog:
    def test_marks_and_programs(self) -> None:
        """The session gets the marks of the log; the Pythons that the hook ran in are counted."""
        of = run()
        rows = log({"python": "3.11.7", "pid": 1}, {"name": "a", "start_s": 1})

        assert take_log(of, rows, "marks", Redaction()).programs == 1
        assert names(of) == [("a", 0)]
        assert of.warnings == []

    @pytest.mark.parametrize(("pid", "rss", "expected"), [(100, 30, 30), (7, 30, None), (100, None, None)])
    def test_end_of_code(self, pid: int, rss: int | None, expected: int | None) -> None:
        """What a watched Python held when its code had ended is known; its line is not another program."""
        of = run()
        watched = WatchedProcess(pid=100, time_s=[0.0, 2.0, 2.0], rss=[0, 300, 0], apart_s=[0.0] * 3)
        of.snapshots = Snapshots(processes=[watched])
        start_ns = of.start.monotonic_ns or 0
        line = {"python": "3.12.3", "ended": True, "pid": pid, "t_ns": start_ns + 1_500_000_000, "rss": rss}

        assert take_log(of, log(line), "marks", Redaction()).programs == 0
        assert of.warnings == []
        assert watched.code_end_s == (None if expected is None else 1.5)
        assert watched.rss == ([0, 300, 0] if expected is None else [0, expected, 30, 0])

    def test_lines_that_are_missing(self) -> None:
        """What a program could not write is counted; a line that was written in part came again."""
        of = run()
        note = {"lost": 55, "cut": 1, "pid": 100, "t_ns": 2_000_000_005}
        take_log(of, log('{"name": "cut', note, {"name": "a", "start_s": 3}), "run.marks.jsonl", Redaction())

        assert names(of) == [("a", 0)]
        assert of.warnings == ["55 marks are missing: for a time, the marks log could not be written (a full disk?)"]

    @pytest.mark.parametrize(
        ("first", "end_s"),
        [({"program": 7}, 3.5), ({"python": "3.12", "program": 7}, 3.5), ({}, 4.0)],
        ids=["API", "hook", "unknown"],
    )
    def test_exec(self, first: dict[str, object], end_s: float) -> None:
        """What is open when a process runs another program ends then: at its first line, or when that was noticed."""
        of = run()
        of.processes[0].end_s = 9.0
        of.unsaved.of_marks = HeldLines(execs=[EXEC, {"id": 7, "from_s": 0.0, "to_s": 9.0}])
        where = {"pid": 100, "tid": 100}
        load = {"event": "begin", "op": 1, "name": "Load", "start_s": 3, **where}
        start = {"name": "New", "t_ns": 3_500_000_005, **where, **first}
        take_log(of, log({"name": "Shell", "start_s": 1}, load, start), "marks", Redaction())
        shell, mark, *others = of.operations

        assert (shell.name, shell.end_s) == ("Shell", 10.0)
        assert (mark.name, mark.end_s, mark.error) == ("Load", end_s, "unfinished")
        assert all(not operation.is_parallel for operation in of.operations)
        assert {operation.end_s for operation in others if first} <= {9.0}

    @pytest.mark.parametrize(
        ("first", "programs", "ends"),
        [
            ({}, (7, 8, 9), [("Run 0", 2.0), ("Run 1", 3.0), ("Run 2", 9.0)]),
            ({"python": "3.12"}, (7, 8, 9), [("Run 0", 2.0), ("Run 1", 3.0), ("Run 2", 9.0)]),
            ({}, (7, 7, 8), [("Run 0", 3.0), ("Run 1", 3.0), ("Run 2", 9.0)]),
            ({"python": "3.12"}, (7, 7, 7), [("Run 0", 9.0), ("Run 1", 9.0), ("Run 2", 9.0)]),
        ],
        ids=["API", "hook", "copy of the API", "several interpreters"],
    )
    def test_execs_that_lines_prove(
        self, first: dict[str, object], programs: tuple[int, ...], ends: list[tuple[str, float]]
    ) -> None:
        """The first line of a program ends what the program before left open; a copy in one program ends nothing."""
        of = run()
        of.processes[0].end_s = 9.0
        rows: list[dict[str, object]] = []
        for number, program in enumerate(programs):
            where = {"pid": 100, "tid": 100, "t_ns": (1 + number) * 10**9 + 5}
            begin = {"event": "begin", "op": 1 + 2 * number, "in": 0, "name": f"Run {number}", "source": "api", **where}
            rows += [{**first, "program": program, **where}, begin] if first else [{**begin, "program": program}]
        take_log(of, log(*rows), "marks", Redaction())

        assert [(operation.name, operation.end_s) for operation in of.operations] == ends
        assert {mark.error for mark in of.marks} == {"unfinished"}

    @pytest.mark.parametrize(
        "known", [{"python": "3.12", "pid": 100}, {"name": "Parent", "pid": 99}], ids=["hook", "fork"]
    )
    def test_exec_after_a_line_of_a_known_program(self, known: dict[str, object]) -> None:
        """A number that an earlier line had begins no program: what is open at an exec right after it ends there."""
        of = run()
        of.processes[0].end_s = 9.0
        of.unsaved.of_marks = HeldLines(execs=[EXEC])
        earlier = {"t_ns": 10**9 + 5, "program": 7, **known}
        load = {"event": "begin", "op": 1, "name": "Load", "t_ns": 3 * 10**9 + 5, "program": 7, "pid": 100, "tid": 100}
        take_log(of, log(earlier, load), "marks", Redaction())

        assert of.operations[-1].name == "Load"
        assert of.operations[-1].end_s == 4.0

    def test_program_of_a_reused_pid(self) -> None:
        """What a process left open ends with it, not when a later process of its PID begins a program."""
        of = run()
        of.processes[0].end_s = 3.0
        of.processes.append(process(1, pid=100, start_s=5.0, end_s=8.0))
        where = {"event": "begin", "op": 1, "pid": 100, "tid": 100}
        old = {"name": "Old", "t_ns": 2 * 10**9 + 5, "program": 7, **where}
        take_log(of, log(old, {"name": "New", "t_ns": 6 * 10**9 + 5, "program": 8, **where}), "marks", Redaction())

        ends = [(operation.name, operation.end_s, operation.depth) for operation in of.operations]

        assert ends == [("Old", 3.0, 0), ("New", 8.0, 0)]

    @pytest.mark.parametrize("way", ["removed", "replaced", "emptied", "there"])
    def test_log_that_is_gone(self, tmp_path: pathlib.Path, way: str) -> None:
        """A log that was removed, replaced or emptied while the command ran lacks marks, which a warning says."""
        path = tmp_path / "run.marks.jsonl"
        path.write_bytes(b" " + log({"event": "begin", "op": 2, "name": "a", "pid": 100, "start_s": 1}).read())
        of = run()
        with path.open("rb") as opened:
            if way == "emptied":
                path.write_bytes(path.read_bytes()[1:])  # the first byte is of the command line
            elif way != "there":
                path.unlink()
            if way == "replaced":
                path.touch()
            notes = take_log(of, opened, path.name, Redaction(), path)

        assert notes.is_gone is (way != "there")
        assert len(of.warnings) == notes.is_gone
        assert of.marks[0].error == ("end unknown" if notes.is_gone else "unfinished")

    def test_disk_that_is_full_at_the_end(self, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What programs could not write until their end is not in the log: a warning says that it may be so."""
        path = tmp_path / "run.marks.jsonl"
        path.write_bytes(b" " + log({"event": "begin", "op": 2, "name": "a", "pid": 100, "start_s": 1}).read())
        monkeypatch.setattr(os, "fstatvfs", lambda _: SimpleNamespace(f_bavail=0, f_blocks=1))
        of = run()
        with path.open("rb") as opened:
            take_log(of, opened, path.name, Redaction(), path)

        assert of.marks[0].error == "end unknown"
        assert of.warnings == ["the file system of the marks log is full: marks may be missing"]

    def test_lines_that_cannot_be_read(self) -> None:
        """Unreadable lines are left out and counted; the warning shows the first."""
        of = run()
        take_log(of, log('{"name": "cut', {"name": "a", "start_s": 1}, {"start_s": 2}), "run.marks.jsonl", Redaction())

        assert names(of) == [("a", 0)]
        assert of.warnings == [
            "2 marks could not be read, the first is line 1 (Input data was truncated) of run.marks.jsonl"
        ]

    def test_after_the_end(self) -> None:
        """Marks after the command's end are left out, except a line of output that was read late."""
        of = run()
        rows = [{"name": name, "start_s": 11, "source": source} for name, source in (("a", "shell"), ("b", "output"))]
        take_log(of, log(*rows), "marks", Redaction())

        assert [(mark.name, mark.start_s) for mark in of.marks] == [("b", 10)]

    def test_warnings_are_repeated_once(self) -> None:
        """A warning of the hook appears once, however many processes log it."""
        of = run()
        take_log(of, log({"warning": "no such function"}, {"warning": "no such function"}), "marks", Redaction())

        assert of.warnings == ["no such function"]

    def test_only_what_was_recorded(self) -> None:
        """Operations that end before the recording or begin after it are left out; one open at its start is clipped."""
        rows = [("before", -5, -1), ("over", -5, 1), ("within", 2, 3), ("after", 11, 12)]
        of = run()
        take_log(
            of,
            log(*({"name": name, "start_s": start, "end_s": end} for name, start, end in rows)),
            "marks",
            Redaction(),
        )

        assert [(mark.name, mark.start_s) for mark in of.marks] == [("over", 0), ("within", 2)]

    def test_saved_models(self) -> None:
        """The compression facts of a saved model are kept by place, from its last save."""
        begin = {"event": "begin", "op": 1, "name": "Saving", "start_s": 1, "pid": 1}
        end = {
            "event": "end",
            "op": 1,
            "start_s": 2,
            "pid": 1,
            "saved": "/m.xml",
            "rt_info": "<nncf><old value='1'/></nncf>",
        }
        again = {**end, "op": 2, "start_s": 3, "rt_info": RT_INFO}
        bad = {**end, "op": 3, "saved": "/bad.xml", "rt_info": "<nncf>&nbsp;"}
        of = run()
        take_log(of, log(begin, end, {**begin, "op": 2, "start_s": 2.5}, again, bad), "marks", Redaction())
        (model,) = of.models

        assert (model.path, model.saved_s) == ("/m.xml", 3)
        assert model.facts == {
            "nncf/version": "3.4.0",
            "optimum/optimum_version": "2.3.0",
            "nncf/weight_compression/mode": "int4_sym",
            "nncf/weight_compression/group_size": "64",
        }

    def test_arguments_are_shortened(self) -> None:
        """Arguments are one text; each of them, and all together, are shortened."""
        of = run()
        long = {"name": "b", "start_s": 2, "arguments": ["x" * 50, *("y" * 30 for _ in range(4))]}
        take_log(of, log({"name": "a", "start_s": 1, "arguments": ["INT4_SYM", "g64"]}, long), "marks", Redaction())
        short, shortened = (mark.arguments or "" for mark in of.marks)

        assert short == "INT4_SYM, g64"
        assert shortened.startswith(f"{'x' * 26}…{'x' * 13}, {'y' * 30}")
        assert len(shortened) == 120

    @pytest.mark.parametrize(
        ("redaction", "arguments", "saved"),
        [
            (Redaction(), "***, INT4", "/out/model.pt"),
            (Redaction(["model"]), "***, INT4", "/out/***.pt"),
            (Redaction(None), "hf_ABCDEFGHIJKLMNOPQRSTUV…CDEFGHIJKLMNO, INT4", "/out/model.pt"),
        ],
    )
    def test_secrets(self, redaction: Redaction, arguments: str, saved: str) -> None:
        """Secrets in arguments and paths are hidden as in command lines, before anything is shortened."""
        of = run()
        secret = "hf_" + "ABCDEFGHIJKLMNO" * 4
        begin = {"event": "begin", "op": 1, "name": "Saving", "start_s": 1, "pid": 1, "arguments": [secret, "INT4"]}
        end = {"event": "end", "op": 1, "start_s": 2, "pid": 1, "saved": "/out/model.pt"}
        take_log(of, log(begin, end), "marks", redaction)
        (mark,) = of.marks

        assert (mark.saved, (mark.arguments or "")[-4:]) == (saved, "INT4")
        assert mark.arguments == arguments or redaction.text(secret) == secret

    def test_own_marks_only(self) -> None:
        """A program that records itself gets its own marks, its descendants' and a shell's since the start."""
        lines = [
            {"name": "mine", "start_s": 1, "pid": 42},
            {"name": "child's", "start_s": 2, "pid": 100},
            {"name": "other's", "start_s": 3, "pid": 7},
            {"name": "outside", "start_s": 3},
            {"name": "before", "start_s": -1, "pid": 42},
            {"lost": 1, "cut": 0, "pid": 42, "t_ns": 9_000_000_005},
        ]
        of = run()
        take_own(of, log(*lines), "marks", 42)

        assert [name for name, _ in names(of)] == ["mine", "child's", "outside"]
        assert of.warnings == ["1 mark is missing: for a time, the marks log could not be written (a full disk?)"]

    def test_marks_of_one_profiler(self) -> None:
        """A profiler gets its own marks and those of none, inside of what is left around them; a child has its own."""
        row = {"pid": 42, "tid": 42, "event": "begin"}
        lines = [
            {"name": "nobody's", "start_s": 1, "op": 1, "in": 0, **row},
            {"name": "other's", "start_s": 2, "op": 3, "in": 1, "profiler": 2, **row},
            {"name": "inner one of it", "start_s": 3, "op": 5, "in": 3, "profiler": 2, **row},
            {"name": "mine", "start_s": 4, "op": 7, "in": 5, "profiler": 1, **row},
            {"name": "child's profiler", "start_s": 5, "op": 1, "in": 0, "profiler": 1, **row, "pid": 100},
            *({"start_s": 10 - op / 2, "op": op, **row, "event": "end"} for op in (7, 5, 3, 1)),
        ]
        of = run()
        take_own(of, log(*lines), "marks", 42, 1)

        assert [(mark.name, mark.depth, mark.end_s) for mark in of.marks] == [("nobody's", 0, 9.5), ("mine", 1, 6.5)]


class TestSidecar:
    def write(self, folder: pathlib.Path, text: str, name: str = "run.marks.csv") -> pathlib.Path:
        """Write a sidecar."""
        (folder / name).write_text(text)
        return folder / name

    def test_names_its_source(self, tmp_path: pathlib.Path) -> None:
        """Operations of a sidecar have the source sidecar."""
        (mark,) = read_sidecar(self.write(tmp_path, "name,start_s,end_s\na,1,2\n"), run())

        assert (mark.name, mark.source, mark.pid) == ("a", "sidecar", None)

    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            ("name,start_s\na,1\n,2\n", "run.marks.csv: line 3: a `name` of at least one character expected"),
            ("name,start_s\na,soon\n", "run.marks.csv: line 2: "),
            ("name,start_s\na,99\n", "'a' begins at 99.000 s, which is not within the recording (10.00 s)"),
        ],
    )
    def test_wrong(self, tmp_path: pathlib.Path, text: str, complaint: str) -> None:
        """An invalid row is refused with file, line and what was expected."""
        with pytest.raises(NncfToolsError) as error:
            read_sidecar(self.write(tmp_path, text), run())

        assert complaint in str(error.value)

    def test_missing(self, tmp_path: pathlib.Path) -> None:
        """A missing file is named."""
        with pytest.raises(NncfToolsError, match=r"none\.csv: cannot be read: No such file"):
            read_sidecar(tmp_path / "none.csv", run())

    def test_written_and_read_again(self, tmp_path: pathlib.Path) -> None:
        """A sidecar that profile writes is read back unchanged, one operation per line."""
        marks = [
            Mark(name="out", start_s=1, end_s=4, pid=1, source="auto", kind="Export", call="f", error="KeyError"),
            Mark(
                name="Saving",
                start_s=1,
                end_s=1.5,
                depth=1,
                source="auto",
                kind="Saving",
                arguments="a, b",
                saved="/x",
                saved_size=9,
            ),
            Mark(name="in", start_s=2, end_s=3, depth=1, pid=1, source="auto", count=9, total_s=0.5, longest_s=0.1),
            Mark(name="last ü\n", start_s=4, source="api"),
        ]
        path = tmp_path / "run.marks.json"
        write_sidecar(marks, path)

        assert read_sidecar(path, run()) == marks
        assert len(path.read_text().splitlines()) == 6

    def test_nothing_to_write(self, tmp_path: pathlib.Path) -> None:
        """A run without operations has an empty list."""
        write_sidecar([], tmp_path / "run.marks.json")

        assert json.loads((tmp_path / "run.marks.json").read_text()) == []

    @pytest.mark.parametrize("session_name", ["run.json", "run.json.gz", "run.journal.jsonl"])
    @pytest.mark.parametrize("ending", [".marks.json", ".marks.jsonl", ".marks.csv"])
    def test_found_beside(self, tmp_path: pathlib.Path, session_name: str, ending: str) -> None:
        """A sidecar next to a session or journal is found by its name."""
        (tmp_path / f"run{ending}").touch()

        assert find_sidecar(tmp_path / session_name) == tmp_path / f"run{ending}"
        assert find_sidecar(tmp_path / "other.json") is None


def test_add_enclosing() -> None:
    """Added operations are the outermost; existing ones are nested in those around them."""
    of = run()
    of.marks = [
        Mark(name="x", start_s=1, end_s=2),
        Mark(name="y", start_s=1.5, end_s=2, depth=1),
        Mark(name="z", start_s=9),
    ]
    add_enclosing(of, [Mark(name="first", start_s=0), Mark(name="second", start_s=5, end_s=8)])

    assert names(of) == [("first", 0), ("x", 1), ("y", 2), ("second", 0), ("z", 0)]


Reading = tuple[float, int]
"""Seconds and MiB."""


def own_readings_run(rise: tuple[float, float, int], *readings: Reading, pid: int = 100) -> Session:
    """Return a session whose process had a rise, and read its own mark when it marked operations."""
    risen = Rise(from_s=rise[0], to_s=rise[1], high_water_mark=rise[2] * MIB)
    of = session({"rss": mib(100, 100, 100)}, processes=[process(rises=[risen], high_water_mark=rise[2] * MIB)])
    of.marks = [
        Mark(name="A", start_s=at_s, end_s=at_s, pid=pid, own_start=OwnMemory(high_water_mark=size * MIB))
        for at_s, size in readings
    ]
    return of


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        ([], (0.2, 0.6)),
        ([(0.3, 100)], (0.3, 0.6)),
        ([(0.5, 400)], (0.2, 0.5)),
        ([(0.3, 100), (0.4, 400), (0.5, 400)], (0.3, 0.4)),
        ([(0.1, 100), (0.9, 400)], (0.2, 0.6)),
        ([(0.3, 700), (0.5, 700)], (0.2, 0.6)),
    ],
    ids=["none", "before the rise", "after the rise", "on both sides", "outside", "of a program before exec"],
)
def test_narrowed(readings: list[Reading], expected: tuple[float, float]) -> None:
    """A rise lies after the last reading below the mark, and before the first one that reached it; so does the peak."""
    of = own_readings_run((0.2, 0.6, 400), *readings)
    narrow(of)
    (rise,) = of.processes[0].rises
    peak = of.peaks["rss"]

    assert (rise.from_s, rise.to_s) == expected
    assert (peak.low, peak.rose_from_s, peak.rose_to_s) == (400 * MIB, *expected)


def test_of_another_process() -> None:
    """What another process read says nothing."""
    of = own_readings_run((0.2, 0.6, 400), (0.3, 400), pid=101)
    narrow(of)

    assert of.processes[0].rises[0].to_s == 0.6


def test_without_a_rise() -> None:
    """Where the sampler reads no marks, a higher mark that the process read is a rise between two readings."""
    of = own_readings_run((0.0, 0.0, 1), (0.3, 100), (0.6, 400), (0.9, 400))
    of.processes = [process()]
    narrow(of)

    assert of.processes[0].rises == [Rise(from_s=0.3, to_s=0.6, high_water_mark=400 * MIB)]
    assert of.peaks["rss"].low == 400 * MIB


@pytest.mark.parametrize(
    ("saved", "expected"), [("m.xml", 107), ("n.xml", 3), ("m.onnx", 55), ("other.bin", 9), ("folder", 12)]
)
def test_weights_beside_a_model_count(tmp_path: pathlib.Path, saved: str, expected: int) -> None:
    """A model's file counts with the weights beside it, a folder with all that is in it."""
    sizes = {"m.xml": 7, "m.bin": 100, "n.xml": 3, "m.onnx": 5, "m.onnx_data": 50, "other.bin": 9}
    for name, size in {**sizes, "folder/a": 5, "folder/inner/b": 7}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * size)

    assert size_of(tmp_path / saved) == expected


def test_what_is_gone_is_unknown(tmp_path: pathlib.Path) -> None:
    """A file that was removed has no size; marks that saved nothing have none either."""
    marks = [
        Mark(name="a", start_s=0, saved=str(tmp_path / "gone")),
        Mark(name="b", start_s=0),
        Mark(name="c", start_s=0),
    ]
    (tmp_path / "there").write_bytes(b"12345")
    marks[2].saved = str(tmp_path / "there")
    take_sizes(marks)

    assert [mark.saved_size for mark in marks] == [None, None, 5]


def of(*command: str, apart: tuple[str, ...] = (), pid: int = 7) -> Process:
    """Return a process."""
    return Process(id=pid, pid=pid, name="python", command=list(command), apart=list(apart))


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (["python", "-I", "a.py"], "-I"),
        (["/usr/bin/python3.11", "-sE", "a.py"], "-E"),
        (["python3", "-W", "error", "-S", "-c", "1"], "-S"),
        (["pypy3", "-X", "dev", "-BI", "a.py"], "-I"),
    ],
)
def test_isolated(command: list[str], option: str) -> None:
    """A Python with an option that keeps it from the hook is the reason that is named."""
    expected = (
        f"no Python program loaded the hook: process 7 (python) ran an isolated Python ({option}), "
        f"which loads no hook: run it without {option}"
    )

    assert no_marks_reason([of(*command)], 0, 0) == expected


@pytest.mark.parametrize(
    "command",
    [
        ["python", "a.py", "-I"],
        ["python", "-c", "-I"],
        ["python", "-m", "x", "-S"],
        ["bash", "-I"],
        ["python", "-"],
        [],
    ],
)
def test_not_isolated(command: list[str]) -> None:
    """Words of the program, and options of other programs, say nothing about the interpreter: no reason is known."""
    assert "the reason is not known" in no_marks_reason([of(*command)], 0, 0)


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("user", "ran as another user, who may not write"),
        ("root", "had another root"),
        ("clock", "ran in a time namespace, whose clock is not"),
    ],
)
def test_apart(way: str, words: str) -> None:
    """Another user, another root folder and another clock are named with the process."""
    found = no_marks_reason([of("python", "a.py", apart=(way,)), of("python", apart=(way,), pid=8)], 1, 0)

    assert found.startswith(f"1 Python program loaded the hook, and process 7 (python) and 1 more {words}")


def test_marks_at_other_times() -> None:
    """Marks that were made outside of the recording are counted."""
    assert no_marks_reason([], 2, 5) == (
        "2 Python programs loaded the hook, and 5 marks were made before or after the recording"
    )


def test_nothing_known() -> None:
    """A program that loaded the hook and marked nothing called no function that is marked; that is all we know."""
    assert no_marks_reason([of("python", "a.py")], 1, 0) == (
        "1 Python program loaded the hook, but called none of these functions: check their names, and whether a Python "
        "without our environment (env -i, tox) calls them"
    )


WORK = "def work():\n    pass\n"
GONE = "the marks log was removed, replaced or emptied: marks are missing"


@pytest.mark.parametrize(
    ("then", "kept"),
    [
        ("os.unlink(log)", 0),
        ("os.rename(log, 'away')", 3),
        pytest.param("os.unlink(log)", 3, marks=pytest.mark.long),
        pytest.param("os.rename(log, 'away')", 0, marks=pytest.mark.long),
    ],
)
def test_command_that_removes_the_log(tmp_path: pathlib.Path, nncf_tools: Run, kept: int, then: str) -> None:
    """What was marked before is kept, and the report says that more is missing: not that nothing was called."""
    (tmp_path / "work.py").write_text(WORK)
    program = (
        "import os, work; log = os.environ['NNCF_TOOLS_MARKS']; "
        f"[work.work() for _ in range({kept})]; {then}; [work.work() for _ in range(5)]"
    )
    words = ("--no-plot", "--mark-call", "work:work", sys.executable, "-c", program)
    done = nncf_tools("profile", "-o", "run.json", *words, env={"PYTHONPATH": str(tmp_path)})
    of = Session.load(tmp_path / "run.json")

    assert done.returncode == 0
    assert [mark.error for mark in of.marks] == [None] * kept
    assert GONE in of.warnings
    assert GONE in done.stderr + done.stdout
    assert not any("marked nothing" in warning for warning in of.warnings)


def test_command_that_empties_the_log(tmp_path: pathlib.Path, nncf_tools: Run) -> None:
    """What was marked before is gone, and the report says so; what comes later is there."""
    (tmp_path / "work.py").write_text(WORK)
    program = (
        "import os, work; work.work(); work.work(); os.truncate(os.environ['NNCF_TOOLS_MARKS'], 0); "
        "work.work(); work.work(); work.work()"
    )
    words = ("-q", "--no-plot", "--no-stacks", "--mark-call", "work:work", sys.executable, "-c", program)
    done = nncf_tools("profile", "-o", "run.json", *words, env={"PYTHONPATH": str(tmp_path)})
    of = Session.load(tmp_path / "run.json")

    assert done.returncode == 0
    assert len(of.marks) == 3
    assert GONE in of.warnings


@pytest.mark.long
def test_log_that_comes_back(tmp_path: pathlib.Path, nncf_tools: Run) -> None:
    """What could not be written for a while is written as soon as it can be: nothing is missing."""
    (tmp_path / "work.py").write_text(WORK)
    program = (
        "import os, work; log = os.environ['NNCF_TOOLS_MARKS']; os.rename(log, 'away'); "
        "assert os.environ['NNCF_TOOLS_MARKS_OWNER'] == str(os.geteuid()); "
        "[work.work() for _ in range(5)]; os.rename('away', log); work.work()"
    )
    words = ("-q", "--no-plot", "--mark-call", "work:work", sys.executable, "-c", program)
    done = nncf_tools("profile", "-o", "run.json", *words, env={"PYTHONPATH": str(tmp_path)})
    of = Session.load(tmp_path / "run.json")

    assert (done.returncode, [mark.error for mark in of.marks]) == (0, [None] * 6)
    assert of.warnings == []
