from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nncftools.analysis.peaks import narrow
from nncftools.analysis.session import Session
from nncftools.errors import NncfToolsError
from nncftools.intake import Redaction
from nncftools.journal.reading import find_sidecar
from nncftools.reading_marks import entries
from nncftools.reading_marks.collecting import (
    add_enclosing,
    measure_size,
    read_sidecar,
    take_log,
    take_own,
    take_sizes,
    write_sidecar,
)
from nncftools.render.sentences import explain_missing_marks
from nncftools.session.model import ExecLine, HeldLines, Mark, OwnMemory, Process, Rise, Snapshots, WatchedProcess
from tests.conftest import Run
from tests.made_up import MIB, cases, mib, process, session
from tests.reading_marks.texts import PID, fields_of, spans

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


def taken(
    *lines: dict[str, object] | str,
    redaction: Redaction | None = None,
    **fields: Any,  # noqa: ANN401 — any field
) -> Session:
    """Return a session of ten seconds with the marks of a log."""
    of = session(**{"duration_s": 10.0, **fields})
    take_log(of, log(*lines), "marks", redaction or Redaction())
    return of


def from_text(text: str) -> list[dict[str, object] | str]:
    """Return lines with CLOCK_MONOTONIC times, from their short text."""
    found: list[dict[str, object] | str] = []
    for line in text.split(", "):
        fields = fields_of(line)
        start_ns = round(fields.pop("start_s") * 1e9) + 5
        found.append({"in": fields.pop("within", None), "t_ns": start_ns, **fields})
    return found


def names(of: Session) -> list[tuple[str, int]]:
    """Return names and depths of a session's marks."""
    return [(mark.name, mark.depth) for mark in of.marks]


def test_line_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that is longer than any mark is read in parts, each of which counts as unreadable."""
    monkeypatch.setattr(entries, "_LONGEST_LINE", 1_000)
    of = run()
    take_log(of, io.BytesIO(b"x" * 2_500 + b'\n{"name":"a","start_s":1}\n'), "marks", Redaction())

    assert names(of) == [("a", 0)]
    assert of.warnings == [
        "3 marks could not be read, the first is line 1 (JSON is malformed: invalid character (byte 0)) of marks"
    ]


LOGS = {
    "lines that a program could not write": (
        '{"name": "cut\n{"lost": 55, "cut": 1, "pid": 100, "t_ns": 2000000005}\n{"name": "a", "start_s": 3}',
        "a 3- 0",
        "the marks log lacks 55 marks: for a time, it could not be written (a full disk?)",
    ),
    "lines that cannot be read": (
        '{"name": "cut\n{"name": "a", "start_s": 1}\n{"start_s": 2}',
        "a 1- 0",
        "2 marks could not be read, the first is line 1 (Input data was truncated) of marks",
    ),
    "warnings of the hook": (
        '{"warning": "no such function"}\n{"warning": "no such function"}',
        "",
        "no such function",
    ),
    "after the end": (
        '{"name": "a", "start_s": 11, "source": "shell"}\n{"name": "b", "start_s": 11, "source": "output"}',
        "b 10- 0",
        "",
    ),
    "outside of the recording": (
        (
            '{"name": "before", "start_s": -5, "end_s": -1}\n{"name": "over", "start_s": -5, "end_s": 1}\n'
            '{"name": "within", "start_s": 2, "end_s": 3}\n{"name": "after", "start_s": 11, "end_s": 12}'
        ),
        "over 0-1 0, within 2-3 0",
        "",
    ),
}


@pytest.mark.parametrize("lines, marks, warnings", LOGS.values(), ids=LOGS)
def test_log(lines: str, marks: str, warnings: str) -> None:
    """Lines that cannot be read or were not written are counted; what is outside of the recording is left out."""
    of = taken(*lines.splitlines())

    assert (spans(of.marks), ", ".join(of.warnings)) == (marks, warnings)


EXECS = {
    "by a line of the API": (
        [EXEC],
        "1 *Shell shell, 3 +Load.1, 3.5 *New program=7",
        "Shell 1-10, Load 3-3.5, New 3.5-9",
    ),
    "by a line of the hook": ([EXEC], '3 +Load.1, 3.5 +N.2 python="3.12" program=7', "Load 3-3.5"),
    "as the sampler noticed it": ([EXEC], "3 +Load.1, 3.5 *New", "Load 3-4, New 3.5-4"),
    "after a line of a known program": ([EXEC], '1 *x python="3.12" program=7, 3 +Load.1 program=7', "Load 3-4"),
    "after a line of a fork's parent": (
        [EXEC],
        "1 *Parent program=7 pid=99, 3 +Load.1 program=7",
        "Parent 1-10, Load 3-4",
    ),
    "proved by lines of the API": (
        [],
        "1 +A.1 in0 program=7, 2 +B.3 in0 program=8, 3 +C.5 in0 program=9",
        "A 1-2, B 2-3, C 3-9",
    ),
    "proved by lines of the hook": (
        [],
        '1 *x python="3" program=7, 1 +A.1 in0, 2 *x python="3" program=8, 2 +B.3 in0',
        "A 1-2, B 2-9",
    ),
    "not by a copy of the API": (
        [],
        "1 +A.1 in0 program=7, 2 +B.3 in0 program=7, 3 +C.5 in0 program=8",
        "A 1-3, B 2-3, C 3-9",
    ),
    "not by several interpreters": (
        [],
        '1 *x python="3" program=7, 1 +A.1 in0, 2 *x python="3" program=7, 2 +B.3 in0',
        "A 1-9, B 2-9",
    ),
}


@pytest.mark.parametrize("execs, lines, expected", EXECS.values(), ids=EXECS)
def test_exec(execs: list[ExecLine], lines: str, expected: str) -> None:
    """What is open when a process runs another program ends then: at its first line, or when that was noticed."""
    of = run()
    of.processes[0].end_s = 9.0
    of.unsaved.of_marks = HeldLines(execs=[*execs, {"id": 7, "from_s": 0.0, "to_s": 9.0}])
    take_log(of, log(*from_text(lines)), "marks", Redaction())

    assert ", ".join(f"{found.name} {found.start_s:g}-{found.end_s:g}" for found in of.operations) == expected


class TestLog:
    @pytest.mark.parametrize("pid, rss, expected", [(100, 30, 30), (7, 30, None), (100, None, None)])
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

    @pytest.mark.parametrize("way", ["removed", "replaced", "emptied", "there"])
    def test_log_that_is_gone(self, tmp_path: Path, way: str) -> None:
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

    def test_disk_that_is_full_at_the_end(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What programs could not write until their end is not in the log: a warning says that it may be so."""
        path = tmp_path / "run.marks.jsonl"
        path.write_bytes(b" " + log({"event": "begin", "op": 2, "name": "a", "pid": 100, "start_s": 1}).read())
        monkeypatch.setattr(os, "fstatvfs", lambda _: SimpleNamespace(f_bavail=0, f_blocks=1))
        of = run()
        with path.open("rb") as opened:
            take_log(of, opened, path.name, Redaction(), path)

        assert of.marks[0].error == "end unknown"
        assert of.warnings == ["the file system of the marks log is full: marks may be missing"]

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
        (model,) = taken(begin, end, {**begin, "op": 2, "start_s": 2.5}, again, bad).models

        assert (model.path, model.saved_s) == ("/m.xml", 3)
        assert model.facts == {
            "nncf/version": "3.4.0",
            "optimum/optimum_version": "2.3.0",
            "nncf/weight_compression/mode": "int4_sym",
            "nncf/weight_compression/group_size": "64",
        }

    @pytest.mark.parametrize(
        "redaction, arguments, saved",
        [
            (Redaction(), "***, INT4", "/out/model.pt"),
            (Redaction(["model"]), "***, INT4", "/out/***.pt"),
            (Redaction(None), "hf_ABCDEFGHIJKLMNOPQRSTUV…CDEFGHIJKLMNO, INT4", "/out/model.pt"),
        ],
    )
    def test_secrets(self, redaction: Redaction, arguments: str, saved: str) -> None:
        """Secrets in arguments and paths are hidden as in command lines, before anything is shortened."""
        secret = "hf_" + "ABCDEFGHIJKLMNO" * 4
        begin = {"event": "begin", "op": 1, "name": "Saving", "start_s": 1, "pid": 1, "arguments": [secret, "INT4"]}
        end = {"event": "end", "op": 1, "start_s": 2, "pid": 1, "saved": "/out/model.pt"}
        (mark,) = taken(begin, end, redaction=redaction).marks

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
        assert of.warnings == ["the marks log lacks 1 mark: for a time, it could not be written (a full disk?)"]

    def test_marks_of_one_profiler(self) -> None:
        """A profiler gets its own marks and those of none, inside of what is left around them; a child has its own."""
        text = (
            "1 +nobody's.1 within=0, 2 +other's.3 within=1 profiler=2, 3 +inner.5 within=3 profiler=2, "
            "4 +mine.7 within=5 profiler=1, 5 +child's.1 within=0 profiler=1 pid=101, 6 -7, 7 -5, 8 -3, 9 -1"
        )
        of = run()
        take_own(of, log(*from_text(text)), "marks", PID, 1)

        assert spans(of.marks) == "nobody's 1-9 0, mine 4-6 1"


class TestSidecar:
    def write(self, folder: Path, text: str, name: str = "run.marks.csv") -> Path:
        """Write a sidecar."""
        (folder / name).write_text(text)
        return folder / name

    @pytest.mark.parametrize(
        "text, complaint",
        [
            ("name,start_s\na,1\n,2\n", "run.marks.csv: line 3: a non-empty `name` expected"),
            ("name,start_s\na,soon\n", "run.marks.csv: line 2: "),
            ("name,start_s\na,99\n", "'a' begins at 99.000 s, which is not within the recording (10.00 s)"),
        ],
    )
    def test_wrong(self, tmp_path: Path, text: str, complaint: str) -> None:
        """An invalid row is refused with file, line and what was expected."""
        with pytest.raises(NncfToolsError) as error:
            read_sidecar(self.write(tmp_path, text), run())

        assert complaint in str(error.value)

    def test_written_and_read_again(self, tmp_path: Path) -> None:
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

    @pytest.mark.parametrize("session_name", ["run.json", "run.json.gz", "run.journal.jsonl"])
    @pytest.mark.parametrize("ending", [".marks.json", ".marks.jsonl", ".marks.csv"])
    def test_found_beside(self, tmp_path: Path, session_name: str, ending: str) -> None:
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


NARROWED = """
none | 0.2-0.6 |  | 0.2-0.6
before the rise | 0.2-0.6 | 0.3=100 | 0.3-0.6
after the rise | 0.2-0.6 | 0.5=400 | 0.2-0.5
on both sides | 0.2-0.6 | 0.3=100 0.4=400 0.5=400 | 0.3-0.4
outside | 0.2-0.6 | 0.1=100 0.9=400 | 0.2-0.6
of a program before exec | 0.2-0.6 | 0.3=700 0.5=700 | 0.2-0.6
of another process | 0.2-0.6 | 0.3=400@101 | 0.2-0.6
where the sampler reads no marks |  | 0.3=100 0.6=400 0.9=400 | 0.3-0.6
"""
"""By case: when the mark rose to 400 MiB, the marks in MiB that the process read itself, and when the mark rose now."""


@pytest.mark.parametrize("rise, readings, expected", cases(NARROWED))
def test_narrowed(rise: str, readings: str, expected: str) -> None:
    """A rise lies after the last reading below the mark, and before the first one that reached it; so does the peak."""
    of = session({"rss": mib(100, 100, 100)}, processes=[process()])
    if rise:
        from_s, to_s = map(float, rise.split("-"))
        rises = [Rise(from_s=from_s, to_s=to_s, high_water_mark=400 * MIB)]
        of.processes = [process(rises=rises, high_water_mark=400 * MIB)]
    for reading in readings.split():
        at, _, size = reading.partition("=")
        mark, _, pid = size.partition("@")
        own = OwnMemory(high_water_mark=int(mark) * MIB)
        of.marks.append(Mark(name="A", start_s=float(at), end_s=float(at), pid=int(pid or PID), own_start=own))
    narrow(of)
    (found,) = of.processes[0].rises
    peak = of.peaks["rss"]

    assert f"{found.from_s:g}-{found.to_s:g}" == f"{peak.rose_from_s:g}-{peak.rose_to_s:g}" == expected
    assert peak.low == found.high_water_mark == 400 * MIB


@pytest.mark.parametrize(
    "saved, expected", [("m.xml", 107), ("n.xml", 3), ("m.onnx", 55), ("other.bin", 9), ("folder", 12)]
)
def test_weights_beside_a_model_count(tmp_path: Path, saved: str, expected: int) -> None:
    """A model's file counts with the weights beside it, a folder with all that is in it."""
    sizes = {"m.xml": 7, "m.bin": 100, "n.xml": 3, "m.onnx": 5, "m.onnx_data": 50, "other.bin": 9}
    for name, size in {**sizes, "folder/a": 5, "folder/inner/b": 7}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * size)

    assert measure_size(tmp_path / saved) == expected


def test_what_is_gone_is_unknown(tmp_path: Path) -> None:
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


NOT_KNOWN, NOT_SEEN = "the reason is not known", "no Python program was seen"
REASONS = {
    "python -I a.py": "an isolated Python (-I), which loads no hook: run it without -I",
    "/usr/bin/python3.11 -sE a.py": "run it without -E",
    "python3 -W error -S -c 1": "run it without -S",
    "pypy3 -X dev -BI a.py": "run it without -I",
    "python a.py -I": NOT_KNOWN,
    "python -c -I": NOT_KNOWN,
    "python -m x -S": NOT_KNOWN,
    "bash -I": NOT_SEEN,
    "python -": NOT_KNOWN,
    "python -VV": NOT_SEEN,
    "python --help": NOT_SEEN,
    "python -S -I /opt/nncftools/helper_process.py sampler 5 6": NOT_SEEN,
    "": NOT_SEEN,
}
"""By command of a process that loaded no hook."""
LOADED = {
    "user": "process 7 (python) ran as another user, who cannot write",
    "root": "process 7 (python) had another root",
    "clock": "process 7 (python) ran in a time namespace, whose clock is",
    "late": "5 marks were made before or after the recording",
    "": "but called none of these functions: check their names",
}
"""By what kept a process with the hook from marking."""


@pytest.mark.parametrize("command, reason", REASONS.items())
def test_no_hook(command: str, reason: str) -> None:
    """The reason why no hook was loaded is named: an isolated Python."""
    assert reason in explain_missing_marks([Process(id=7, name="python", command=command.split())], 0, 0)


@pytest.mark.parametrize("cause, reason", LOADED.items())
def test_no_marks(cause: str, reason: str) -> None:
    """The reason why a program with the hook marked nothing is named: another user, root or clock, other times."""
    apart = [] if cause in {"late", ""} else [cause]
    found = explain_missing_marks([Process(id=7, pid=7, name="python", apart=apart)], 1, 5 * (cause == "late"))

    assert found.startswith("1 Python program loaded the hook")
    assert reason in found


GONE = "the marks log was removed, replaced or emptied: marks are missing"


def test_command_that_removes_the_log(tmp_path: Path, nncf_tools: Run) -> None:
    """What was marked before is kept, and the report says that more is missing: not that nothing was called."""
    (tmp_path / "work.py").write_text("def work():\n    pass\n")
    program = (
        "import os, work; log = os.environ['NNCF_TOOLS_MARKS']; [work.work() for _ in range(3)]; "
        "os.rename(log, 'away'); work.work()"
    )
    words = ("--no-plot", "--no-stacks", "--mark-call", "work:work", sys.executable, "-c", program)
    done = nncf_tools("profile -o run.json", *words, env={"PYTHONPATH": str(tmp_path)})
    of = Session.load(tmp_path / "run.json")

    assert (done.returncode, [mark.error for mark in of.marks]) == (0, [None] * 3)
    assert GONE in of.warnings
    assert GONE in done.stderr + done.stdout
