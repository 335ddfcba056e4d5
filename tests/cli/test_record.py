from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from nncftools import Session
from nncftools.sampler.client import list_device_metrics
from tests.conftest import HANGING_S, Run, burner, command_line
from tests.made_up import full_disk
from tests.trust.recorder import result_of
from tests.waiting import until

MIB = 2**20
UNTIL_NAMED = 'name=; until [ "$name" = sleep ]; do read -r name < /proc/$!/comm; done;'
"""In a shell, wait until the process in the background runs sleep, and is no copy of the shell any more."""
UNTIL_SAMPLED = (
    "count() { grep -c '^\\[' run.journal.jsonl; }; "
    "before=$(count); until [ $(count) -gt $((before + 1)) ]; do sleep 0.01; done;"
)
"""In a shell, wait for two samples."""


Recorded = Callable[..., Session]


@pytest.fixture
def recorded(nncf_tools: Run, tmp_path: Path) -> Recorded:
    """Record quietly to a file and load it."""

    def record(*words: object, **options: Any) -> Session:  # noqa: ANN401 — passed on to subprocess
        result = nncf_tools("monitor -q -o run.json", *words, **options)
        assert result.returncode == 0, result.stderr
        return Session.load(tmp_path / "run.json")

    return record


def in_background(folder: Path, *words: object, **options: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401 — passed on to subprocess
    """Start nncf-tools in a process group of its own."""
    return subprocess.Popen(command_line(*words), cwd=folder, start_new_session=True, **options)


def start_of(journal: Path) -> dict[str, Any]:
    """Wait for the journal's first sample and return its start line."""
    text = until(lambda: journal.exists() and "\n[" in (text := journal.read_text()) and text, "a sample")
    assert text
    found: dict[str, Any] = next(json.loads(line)["start"] for line in text.splitlines() if line.startswith('{"start"'))
    return found


@pytest.fixture
def truth(tmp_path: Path) -> Path:
    """Return the file into which burners write their own figures."""
    return tmp_path / "truth"


class TestFigures:
    def test_daemon_is_named_and_left(self, nncf_tools: Run, tmp_path: Path) -> None:
        """A daemon that outlives the command is named and left running."""
        script = f"setsid sleep {HANGING_S} >/dev/null 2>&1 & {UNTIL_NAMED} {UNTIL_SAMPLED} echo $! > pid; exit 4"
        result = nncf_tools("monitor -i 0.02 -o run.json sh -c", script)
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)

        assert result.returncode == 4
        assert "still running when the command ended, and not recorded further: sleep" in result.stderr

    @pytest.mark.long
    def test_wait_all_waits_for_daemons(self, nncf_tools: Run, tmp_path: Path) -> None:
        """With --wait-all, a daemon that outlives the command is recorded to its end."""
        daemon = "while test -e /proc/$0; do sleep 0.02; done; : > after"
        script = f"setsid sh -c '{daemon}' $$ & exit 4"
        result = nncf_tools("monitor -i 0.02 -o run.json --wait-all sh -c", script)
        session = Session.load(tmp_path / "run.json")

        assert result.returncode == 4
        assert (tmp_path / "after").exists()
        assert "still running" not in result.stderr
        assert session.duration_s > (session.processes[0].end_s or session.duration_s)

    @pytest.mark.parametrize("interval, samples", [(0.05, 2), pytest.param(0.5, 1, marks=pytest.mark.long), (10, 0)])
    def test_bracket_holds_a_spike(self, recorded: Recorded, truth: Path, interval: float, samples: int) -> None:
        """With any interval, the process's own high-water mark is within the bounds, which are narrow.

        A peak between samples is known from the kernel's high-water mark. With a single sample, the mark may belong to
        a child that the sample missed; then the bound also counts the sampled interpreter, about 10 MiB.
        """
        session = recorded("-i", interval, "--", *burner("spike", truth, 60, 0.04, samples))
        mark = int(truth.read_text())
        peak = session.peaks["rss"]

        assert mark > 60 * MIB
        assert peak.low == pytest.approx(mark, rel=0.02)
        assert mark * 0.98 <= (peak.high or 0) <= mark + 12 * MIB
        assert peak.low_from == "high_water_mark" or interval < 10

    @pytest.mark.parametrize(
        "source, options, number",
        [
            ("proc", [], 2),
            pytest.param("proc", ["--no-children"], 1, marks=pytest.mark.long),
            pytest.param("psutil", [], 2, marks=pytest.mark.long),
        ],
    )
    def test_tree_of_two_levels(  # noqa: PLR0913, PLR0917 — fixtures and cases
        self,
        recorded: Recorded,
        truth: Path,
        monkeypatch: pytest.MonkeyPatch,
        source: str,
        options: list[str],
        number: int,
    ) -> None:
        """Parent and child count together, unless --no-children is given; each recorded process has a series."""
        monkeypatch.setenv("_NNCF_TOOLS_SOURCE", source)
        session = recorded(*options, "--per-process", "-i", 0.02, "--", *burner("levels", truth, 2, 60, 2))
        largest = [max(process.series.rss) for process in session.processes if process.series]
        rss = sum(map(int, truth.read_text().split()[:number]))

        assert rss > number * 60 * MIB
        assert session.peaks["rss"].sampled == pytest.approx(rss, rel=0.02)
        assert len(largest) == number
        assert largest == [process.peak_rss for process in session.processes]


class TestCommand:
    @pytest.mark.process
    def test_gets_what_it_would_get_alone(self, tmp_path: Path) -> None:
        """Arguments, folder, input and environment (plus the marks log) reach the command unchanged, in any locale."""
        arguments = ["a b", "$HOME", "*", "'\"", "", "-i", "--", "--quiet", "\udcff"]
        environment = {"A": "b", "PATH": os.environ["PATH"], "PYTHONPATH": str(Path.cwd())}
        words = command_line("monitor -q -o r.json", *burner("tell", "told.json", *arguments))
        subprocess.run(words, cwd=tmp_path, env=environment, input=b"hello", check=True, timeout=99)
        log = {"NNCF_TOOLS_MARKS": tmp_path / "r.marks.jsonl", "NNCF_TOOLS_MARKS_OWNER": os.geteuid()}

        assert json.loads((tmp_path / "told.json").read_text()) == {
            "arguments": [os.fsencode(word).decode("latin-1") for word in arguments],
            "folder": str(tmp_path),
            "environment": sorted(["", *(f"{name}={value}" for name, value in {**environment, **log}.items())]),
            "input": "hello",
        }

    def test_find_special_when_asked_for(self, nncf_tools: Run) -> None:
        """With --shell, one quoted string is a shell script."""
        result = nncf_tools("monitor -q --no-plot --shell 'echo one | tr a-z A-Z; exit 5'")

        assert result.stdout == "ONE\n"
        assert result.returncode == 5

    def test_script_without_interpreter_line(self, nncf_tools: Run, tmp_path: Path) -> None:
        """A script without a #! line is run by sh, as env and time would run it."""
        (tmp_path / "script").write_text('echo "$0 $1"\n')
        (tmp_path / "script").chmod(0o755)

        assert nncf_tools("monitor -q --no-plot ./script 'a b'").stdout == "./script a b\n"

    @pytest.mark.long
    @pytest.mark.process
    def test_folder_that_was_removed(self, tmp_path: Path) -> None:
        """A recording works even if the working folder was removed."""
        words = " ".join(command_line("monitor -q -o", tmp_path / "run.json", "true"))
        script = f"mkdir gone && cd gone && rmdir ../gone && PYTHONPATH={Path.cwd()} {words}"
        result = result_of(["sh", "-c", script], tmp_path)

        assert (result.returncode, result.stderr) == (0, "")
        assert Session.load(tmp_path / "run.json").cwd == ""


class TestExitStatus:
    @pytest.mark.parametrize(
        "words, expected",
        [
            (["sh", "-c", "exit 7"], 7),
            (["sh", "-c", "kill -TERM $$"], 128 + signal.SIGTERM),
            (["sh", "-c", "kill -KILL $$"], 128 + signal.SIGKILL),
            (["no-such-program"], 127),
            (["./no-such-file"], 127),
            (["./broken"], 127),
            (["./plain.txt"], 126),
            (["/"], 126),
        ],
    )
    def test_is_the_commands(self, nncf_tools: Run, tmp_path: Path, words: list[str], expected: int) -> None:
        """The status is the command's; of a command that cannot start, it is a shell's status, and no file is left."""
        (tmp_path / "plain.txt").write_text("not a program")
        (tmp_path / "broken").write_text("#!/no/such/interpreter\n")
        (tmp_path / "broken").chmod(0o755)
        result = nncf_tools("monitor -q", *words)

        assert result.returncode == expected
        assert result.stderr.count("\n") == (expected in {126, 127})
        assert len(list(tmp_path.iterdir())) == (2 if result.stderr else 3)

    @pytest.mark.process
    @pytest.mark.parametrize(
        "stream", ["2>/dev/full", *(pytest.param(of, marks=pytest.mark.long) for of in ("2>&-", ">&-"))]
    )
    def test_survives_a_lost_terminal(self, tmp_path: Path, stream: str) -> None:
        """If our output cannot be printed, the recording and the command's status are kept."""
        words = " ".join(command_line("monitor --no-plot -o run.json sh -c ''\"'\"'exit 7'\"'\"''"))
        status = subprocess.run(["sh", "-c", f"{words} {stream}"], cwd=tmp_path, check=False).returncode

        assert (status, (tmp_path / "run.json").exists()) == (7, True)

    @pytest.mark.long
    def test_survives_a_broken_plot_library(self, nncf_tools: Run, tmp_path: Path) -> None:
        """If pictures cannot be drawn, one line says why; session and status are kept."""
        result = nncf_tools("monitor -q -o run.json --plot sh -c 'exit 7'", env={"MPLBACKEND": "x"})

        assert (result.returncode, (tmp_path / "run.json").exists()) == (7, True)
        assert result.stderr.startswith(
            "nncf-tools: error: the session is written to run.json, but files beside it are missing: "
        )
        assert len(result.stderr.splitlines()) == 1


class TestAttach:
    @pytest.mark.process
    @pytest.mark.parametrize("is_ended", [False, True])
    def test_process_is_recorded_until_it_ends(self, tmp_path: Path, *, is_ended: bool) -> None:
        """--pid records a running process until the process ends; SIGTERM ends the recording, and not the process."""
        command = burner("touch", 50, tmp_path / "go")
        with subprocess.Popen(command) as process:
            until(lambda: psutil.Process(process.pid).memory_info().rss > 50 * MIB, "memory")
            tool = in_background(tmp_path, "monitor", "-q", "-i", 0.02, "-o", "run.json", "--pid", process.pid)
            start_of(tmp_path / "run.journal.jsonl")
            if is_ended:
                tool.terminate()
                tool.wait(HANGING_S)
                assert process.poll() is None
            (tmp_path / "go").touch()
            statuses = process.wait(HANGING_S), tool.wait(HANGING_S)
        session = Session.load(tmp_path / "run.json")

        assert statuses == (0, 0)
        assert (session.attached_to, session.command) == (process.pid, command)
        assert (session.peaks["rss"].sampled or 0) > 50 * MIB

    @pytest.mark.long
    @pytest.mark.process
    def test_our_own_processes_are_left_out(self, tmp_path: Path) -> None:
        """Attached to the shell that started it, the recording includes neither command line nor sampler."""
        words = " ".join(command_line("monitor -q -o run.json --duration 0.1"))
        for source in ("proc", "psutil"):
            script = f"_NNCF_TOOLS_SOURCE={source} {words} --force --pid $$; true"
            subprocess.run(["sh", "-c", script], cwd=tmp_path, check=True, timeout=HANGING_S)

            assert [process.name for process in Session.load(tmp_path / "run.json").processes] == ["sh"]


class TestFiles:
    @pytest.mark.parametrize("command", [pytest.param("monitor", marks=pytest.mark.long), "profile"])
    def test_new_folder_for_each_run(self, nncf_tools: Run, tmp_path: Path, command: str) -> None:
        """A new folder has session and picture, ``latest`` points to it; --plot adds the page of a short run, too."""
        written = []
        for options in (["--no-plot"], ["--plot"]):
            nncf_tools(command, "-q", *options, *command_line("mark Export"))
            written.append({path.name for path in (tmp_path / "memory_logs/latest").iterdir()})

        figures = {"session.json", "session.marks.json"}
        assert written == [figures, {*figures, "session.png", "session.html"}]
        assert len(list((tmp_path / "memory_logs").iterdir())) == 3

    @pytest.mark.parametrize(
        "name, message",
        [
            ("run.json", "'run.json' is a device or pipe; a recording needs a file that can be read again"),
            ("run.journal.jsonl", "'run.journal.jsonl' is a symbolic link; name the target of the link"),
            ("run.marks.json", "'run.marks.json' is a symbolic link; name the target of the link"),
        ],
    )
    def test_only_a_file_is_replaced(self, nncf_tools: Run, tmp_path: Path, name: str, message: str) -> None:
        """A pipe and a link of another file are refused by name, even with --force, and the command is not started."""
        if name == "run.json":
            os.mkfifo(tmp_path / name)
        else:
            (tmp_path / name).symlink_to("missing")
        result = nncf_tools("monitor --force -o run.json touch started")

        assert result.returncode == 2
        assert f"option --output: {message}" in result.stderr
        assert [path.name for path in tmp_path.iterdir()] == [name]

    @pytest.mark.parametrize("option", ["--output=/proc/locked/run.json", "--log-dir=/proc/locked"])
    def test_unwritable_place(self, nncf_tools: Run, tmp_path: Path, option: str) -> None:
        """If nothing can be written, not even by root, the command is not started."""
        result = nncf_tools("monitor", option, "touch", "started")

        assert result.returncode == 2
        assert f"option {option.partition('=')[0]}: cannot write" in result.stderr
        assert list(tmp_path.iterdir()) == []


class TestBadInput:
    @pytest.mark.parametrize(
        "words, message",
        [
            (["echo 'open"], "argument COMMAND:"),
            pytest.param(
                ["--type", "rss,device", "true"],
                "option --type: 'device' is not available here: there is no GPU or NPU",
                marks=pytest.mark.skipif(bool(list_device_metrics()), reason="there is a GPU or NPU"),
            ),
            (["-o", "n" * 300, "true"], "File name too long"),
        ],
    )
    def test_is_one_line(self, in_process: Run, tmp_path: Path, words: list[str], message: str) -> None:
        """What cannot be recorded gives one line and status 2, and leaves no files; golden outputs have more."""
        result = in_process("monitor", *words)

        assert result.returncode == 2
        assert len(result.stderr.splitlines()) == 1
        assert message in result.stderr
        assert list(tmp_path.iterdir()) == []

    def test_metric_of_another_platform(self, in_process: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        """A metric that this platform does not have is refused."""
        monkeypatch.setenv("_NNCF_TOOLS_SOURCE", "psutil")
        result = in_process("monitor --type pss true")

        assert "error: option --type: 'pss' is not available here: not on this platform\n" in result.stderr


class TestMarks:
    @pytest.mark.long
    def test_shell_script(self, nncf_tools: Run, tmp_path: Path) -> None:
        """A script marks with the command or by appending a line."""
        script = tmp_path / "run.sh"
        tools = f"{sys.executable} -m nncftools"
        script.write_text(
            f"{tools} mark Export\n"
            'printf \'{"name":"by hand","start":"%s"}\\n\' "$(date -Ins)" >> "$NNCF_TOOLS_MARKS"\n'
            f"{tools} mark 'Weight Compression'\n"
        )
        nncf_tools("profile -q --no-plot -o run.json sh", script)
        marks = Session.load(tmp_path / "run.json").marks

        assert [(mark.name, mark.depth) for mark in marks] == [
            ("Export", 0),
            ("by hand", 0),
            ("Weight Compression", 0),
        ]
        assert marks[0].end_s == marks[1].start_s

    def test_lines_of_output(self, nncf_tools: Run, tmp_path: Path) -> None:
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

    def test_exec(self, nncf_tools: Run, tmp_path: Path) -> None:
        """An operation that is open when its process calls exec ends then; the next program has its own operations."""
        opens = "import nncftools, os, sys\nnncftools.operation('Load').__enter__()\n"
        marks = "import nncftools, time\nwith nncftools.operation('New'): time.sleep(0.2)"
        script = f"{opens}os.execv(sys.executable, [sys.executable, '-c', sys.argv[1]])"
        nncf_tools("monitor -q -i 0.05 -o run.json --", sys.executable, "-c", script, marks)
        load, new = Session.load(tmp_path / "run.json").operations

        assert (load.name, load.error, new.name, new.depth) == ("Load", "unfinished", "New", 0)
        assert load.end_s <= new.start_s

    def test_option_behind_the_command(self, nncf_tools: Run) -> None:
        """An option of ours behind the command goes to the command, and a note says so."""
        result = nncf_tools("monitor -q --no-plot -o run.json -- echo --live")

        assert result.stdout == "--live\n"
        assert "note: the command gets --live; an option of nncf-tools comes before the command" in result.stderr

    def test_capture_on_a_full_disk(self, nncf_tools: Run, tmp_path: Path) -> None:
        """A captured file that lacks output is told in one line; the command's own output and status are as without."""
        script = "import os, sys; [print('y' * 99) for _ in range(3000)]; sys.exit(3)"
        words = ("-o", "run.json", "--capture", "out.txt", "--", sys.executable, "-c", script)
        with full_disk(100_000):
            result = nncf_tools("monitor -q", *words)

        assert result.returncode == 3
        assert result.stdout == ("y" * 99 + "\n") * 3000
        told = "nncf-tools: option --capture: the rest of 'out.txt' is missing: File too large\n"
        assert result.stderr == told
        assert (tmp_path / "out.txt").stat().st_size <= 100_000

    def test_catalogued_and_named_calls(self, nncf_tools: Run, tmp_path: Path) -> None:
        """Calls of the catalogue and of --mark-call are marked in an unchanged script; --no-auto marks none."""
        (tmp_path / "mine.py").write_text("def fit():\n    return 'fitted'\n")
        module = tmp_path / "nncf/quantization/quantize_model.py"
        module.parent.mkdir(parents=True)
        module.write_text("def compress_weights(model):\n    return model + 1\n")
        code = "import mine, nncf.quantization.quantize_model as nncf\nprint(nncf.compress_weights(1), mine.fit())\n"
        (tmp_path / "run.py").write_text(code)
        script = (sys.executable, "run.py")
        result = nncf_tools("profile -q --no-plot -o run.json --mark-call mine:fit=Training", *script)
        nncf_tools("profile -q --no-plot -o off.json --no-auto", *script)
        marks = Session.load(tmp_path / "run.json").marks

        assert result.stdout == "2 fitted\n"
        assert [(mark.name, mark.source) for mark in marks] == [("Weight Compression", "auto"), ("Training", "auto")]
        assert Session.load(tmp_path / "off.json").marks == []


class TestProfileBadInput:
    def test_keeps_what_is_there(self, nncf_tools: Run, tmp_path: Path) -> None:
        """Files next to the session are kept unless --force is given; then a stale sidecar is removed."""
        (tmp_path / "run.marks.csv").write_text("name,start_s\nold,0\n")
        refused = nncf_tools("profile -q -o run.json true")
        forced = nncf_tools("profile -q --no-plot --force -o run.json true")

        assert (refused.returncode, forced.returncode) == (2, 0)
        assert "run.marks.csv" in refused.stderr
        assert not (tmp_path / "run.marks.csv").exists()


class TestMarkCommand:
    def test_bad_input(self, nncf_tools: Run) -> None:
        """An empty name and a missing log give one line each; without a recording, nothing is printed."""
        alone = nncf_tools("mark Export")
        empty = nncf_tools("mark ' '")
        gone = nncf_tools("mark a", env={"NNCF_TOOLS_MARKS": "/no/such/log"})

        assert (alone.returncode, empty.returncode, gone.returncode) == (0, 2, 1)
        assert alone.stdout + alone.stderr == ""
        assert "argument NAME" in empty.stderr
        assert "/no/such/log" in gone.stderr
