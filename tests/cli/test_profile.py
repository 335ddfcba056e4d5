from __future__ import annotations

import json
import os
import pathlib
import sys

import pytest

from nncftools import Session
from tests.conftest import BURNERS, Run
from tests.made_up import MIB, header, mib, session

PHASES = [sys.executable, str(BURNERS / "phases.py"), "300"]


class TestMarks:
    def test_operations_of_a_script(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """Each operation has its memory and its children's I/O; report, session, marks and picture are written."""
        result = nncf_tools("profile", "-o", "run.json", "--plot", *PHASES)
        of = Session.load(tmp_path / "run.json")
        loading, export, compilation, cleanup = of.operations
        grown, shrunk = map(int, (tmp_path / "phases.txt").read_text().split())

        assert (result.returncode, result.stdout) == (0, "done\n")
        assert [phase.name for phase in of.operations] == ["Model Loading", "Export", "Compilation", "Cleanup"]
        assert loading.delta == pytest.approx(grown, abs=MIB)
        assert export.read_chars == pytest.approx(300 * MIB, rel=0.01)
        assert compilation.has_peak
        assert cleanup.delta == pytest.approx(shrunk, abs=MIB)
        assert grown >= 60 * MIB > 0 > -150 * MIB >= shrunk
        assert "during Compilation" in result.stderr
        assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
        assert len(json.loads((tmp_path / "run.marks.json").read_text())) == 4
        assert sorted(path.name for path in tmp_path.glob("run*")) == [
            "run.html",
            "run.json",
            "run.marks.json",
            "run.png",
        ]

    def test_monitor_keeps_marks_too(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """A session of monitor has the marks of the program; no other files are left."""
        script = "import nncftools\nfor name in 'ab': nncftools.mark_operation(name)"
        nncf_tools("monitor", "-q", "-o", "run.json", sys.executable, "-c", script)

        assert [mark.name for mark in Session.load(tmp_path / "run.json").marks] == ["a", "b"]
        assert [path.name for path in tmp_path.glob("run*")] == ["run.json"]

    def test_shell_script(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """A script marks with the command or by appending a line; marks of a Python program in it are nested."""
        script = tmp_path / "run.sh"
        tools = f"{sys.executable} -m nncftools"
        script.write_text(
            f"{tools} mark Export\n"
            f"{sys.executable} -c 'import nncftools; nncftools.mark_operation(\"inner\")'\n"
            'printf \'{"name":"by hand","start":"%s"}\\n\' "$(date -Ins)" >> "$NNCF_TOOLS_MARKS"\n'
            f"{tools} mark 'Weight Compression'\n"
        )
        nncf_tools("profile", "-q", "--no-plot", "-o", "run.json", "sh", script)
        marks = Session.load(tmp_path / "run.json").marks

        assert [(mark.name, mark.depth) for mark in marks] == [
            ("Export", 0),
            ("inner", 1),
            ("by hand", 0),
            ("Weight Compression", 0),
        ]
        assert marks[0].end_s == marks[2].start_s

    def test_lines_of_output(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """Matching lines start operations, named by the match or its group, and pass through unchanged."""
        out, error = "Epoch 1: go\nEpoch 2\rEpoch 3\r", "\x1b[1mloading model A\x1b[0m\n"
        script = f"import sys; sys.stdout.write({out!r}); sys.stderr.write({error!r})"
        patterns = ("--mark-on", r"Epoch \d+", "--mark-on", "loading (?P<name>.*)")
        words = ("profile", "-q", "--no-plot", "-o", "run.json", *patterns, sys.executable, "-c", script)
        result = nncf_tools(*words, text=False)
        marks = Session.load(tmp_path / "run.json").marks

        assert (result.stdout, result.stderr) == (out.encode(), error.encode())
        assert sorted(mark.name for mark in marks) == ["Epoch 1", "Epoch 2", "Epoch 3", "model A"]
        assert {mark.source for mark in marks} == {"output"}

    def test_nothing_marked(self, nncf_tools: Run) -> None:
        """If nothing was marked, the report says what is known of the reason."""
        blind = nncf_tools("profile", "--no-plot", sys.executable, "-I", "-c", "1")
        seeing = nncf_tools("profile", "--no-plot", sys.executable, "-c", "1")

        assert "no Python program loaded the hook: process" in " ".join(blind.stderr.split())
        assert "ran an isolated Python (-I), which loads no hook" in " ".join(blind.stderr.split())
        assert "1 Python program loaded the hook and called no catalogued function" in " ".join(seeing.stderr.split())

    def test_catalogued_and_named_calls(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """Calls of the catalogue and of --mark-call are marked in an unchanged script; --no-auto marks none."""
        package = tmp_path / "nncf" / "quantization"
        package.mkdir(parents=True)
        (package.parent / "__init__.py").write_text("from nncf.quantization.quantize_model import quantize\n")
        (package / "__init__.py").touch()
        (package / "quantize_model.py").write_text("def quantize(model):\n    return model + 1\n")
        (tmp_path / "mine.py").write_text("def fit():\n    return 'fitted'\n")
        (tmp_path / "run.py").write_text("import nncf, mine\nprint(nncf.quantize(1), mine.fit())\n")
        words = ("--mark-call", "mine:fit=Training", sys.executable, "run.py")
        env = {"PYTHONPATH": os.pathsep.join([str(pathlib.Path.cwd()), str(tmp_path)])}
        result = nncf_tools("profile", "-q", "--no-plot", "-o", "run.json", *words, env=env)
        nncf_tools("profile", "-q", "--no-plot", "-o", "off.json", "--no-auto", sys.executable, "run.py", env=env)
        marks = Session.load(tmp_path / "run.json").marks

        assert result.stdout == "2 fitted\n"
        assert [(mark.name, mark.kind, mark.source) for mark in marks] == [
            ("Quantization", "Quantization", "auto"),
            ("Training", "Training", "auto"),
        ]
        assert marks[0].call == "nncf.quantize"
        assert Session.load(tmp_path / "off.json").marks == []


class TestBadInput:
    @pytest.mark.parametrize(
        ("words", "complaint"),
        [
            (["--mark-on", "(", "true"], "option --mark-on: '(' is not a regular expression"),
            (["--mark-call", "nonsense", "true"], "option --mark-call: package.module:function=Name or"),
            (["--mark-call", "prepare", "true"], "found 'prepare'; of the script itself: __main__:prepare"),
            (["--no-auto", "--mark-call", "a:b=c", "true"], "either --no-auto or --mark-call, not both"),
            (["--depth", "0", "true"], "--depth"),
            ([], "argument COMMAND: missing"),
        ],
    )
    def test_options(self, in_process: Run, tmp_path: pathlib.Path, words: list[str], complaint: str) -> None:
        """Impossible options are refused in one line before anything starts, and no files are left."""
        result = in_process("profile", *words)

        assert result.returncode == 2
        assert complaint in result.stderr
        assert len(result.stderr.splitlines()) == 1
        assert list(tmp_path.iterdir()) == []

    def test_pyproject(self, in_process: Run, tmp_path: pathlib.Path) -> None:
        """Invalid calls in pyproject.toml are named with the file."""
        (tmp_path / "pyproject.toml").write_text('[tool.nncf-tools]\nmark-calls = ["nonsense"]\n')
        result = in_process("profile", "true")

        assert result.returncode == 2
        assert "pyproject.toml: " in result.stderr

    def test_keeps_what_is_there(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """Files next to the session are kept unless --force is given; then a stale sidecar is removed."""
        (tmp_path / "run.marks.csv").write_text("name,start_s\nold,0\n")
        refused = nncf_tools("profile", "-q", "-o", "run.json", "true")
        forced = nncf_tools("profile", "-q", "--no-plot", "--force", "-o", "run.json", "true")

        assert (refused.returncode, forced.returncode) == (2, 0)
        assert "run.marks.csv" in refused.stderr
        assert not (tmp_path / "run.marks.csv").exists()

    def test_marks_that_cannot_be_read(self, nncf_tools: Run) -> None:
        """An invalid line in the marks log is counted in a warning, and the run is unaffected."""
        result = nncf_tools(
            "profile", "--no-auto", "--no-plot", "-o", "run.json", "sh", "-c", 'echo oops >> "$NNCF_TOOLS_MARKS"'
        )

        assert result.returncode == 0
        assert "1 mark could not be read, the first is line 1" in " ".join(result.stderr.split())


class TestMarkCommand:
    def test_without_a_recording(self, nncf_tools: Run) -> None:
        """A script with marks also runs without a recording."""
        result = nncf_tools("mark", "Export")

        assert (result.returncode, result.stdout, result.stderr) == (0, "", "")

    def test_bad_input(self, nncf_tools: Run) -> None:
        """An empty name and a missing log give one line each."""
        empty = nncf_tools("mark", " ")
        gone = nncf_tools("mark", "a", env={"NNCF_TOOLS_MARKS": "/no/such/log"})

        assert (empty.returncode, gone.returncode) == (2, 1)
        assert "argument NAME" in empty.stderr
        assert "/no/such/log" in gone.stderr


class TestReport:
    @pytest.fixture(autouse=True)
    def _session(self, tmp_path: pathlib.Path) -> None:
        """Write a session of three seconds, and its sidecar without marks, as ``profile`` leaves them."""
        session({"rss": mib(10, 50, 50, 20)}, duration_s=3.0).save(tmp_path / "run.json")
        (tmp_path / "run.marks.json").write_text("[]")

    def test_sidecar_by_hand(self, in_process: Run, tmp_path: pathlib.Path) -> None:
        """Operations from a file are reported and drawn."""
        (tmp_path / "o.csv").write_text("name,start_s,end_s\nSetup,0,0.2\nExport,0.2,\n")
        result = in_process("report", "run.json", "--marks", "o.csv", "--panels", "run.svg")

        assert "1. 0.000 s Setup" in result.stdout
        assert "2. 0.200 s Export" in result.stdout
        assert (tmp_path / "run.svg").read_bytes().startswith(b"<?xml")

    def test_sidecar_beside_is_found(self, in_process: Run, tmp_path: pathlib.Path) -> None:
        """The sidecar next to the session has its marks, with edits."""
        (tmp_path / "run.marks.json").write_text('[{"name": "edited", "start_s": 0.1}]')

        assert "edited" in in_process("report", "run.json").stdout

    def test_wrong_sidecar(self, in_process: Run, tmp_path: pathlib.Path) -> None:
        """The message on an invalid row names file and line, and nothing is drawn."""
        (tmp_path / "o.csv").write_text("name,start_s\n,1\n")
        result = in_process("report", "run.json", "--marks", "o.csv", "--panels", "run.svg")

        assert result.returncode == 1
        assert result.stderr == "nncf-tools: error: o.csv: line 2: a `name` of at least one character expected\n"
        assert not (tmp_path / "run.svg").exists()

    def test_journal_with_its_log(self, in_process: Run, tmp_path: pathlib.Path) -> None:
        """The journal of a killed recording is shown with the marks from its marks log."""
        journal = [
            header(),
            {"start": {"utc": "2026-11-21T07:00:00Z", "monotonic_ns": 0, "pid": 1}},
            [0.0, 4096],
            [2.0, 8192],
        ]
        (tmp_path / "x.journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in journal))
        (tmp_path / "x.marks.jsonl").write_text('{"name":"Export","t_ns":1000000000,"pid":1,"tid":1}\nhalf')
        result = in_process("report", "x.journal.jsonl")

        assert "1.  1.00 s Export" in result.stdout
        assert "1 mark could not be read" in " ".join(result.stdout.split())
