from __future__ import annotations

import ctypes
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pexpect
import pytest

from nncftools import Session
from nncftools.errors import UsageError
from nncftools.sampler.client import list_device_metrics
from tests.conftest import BURNERS, HANGING_S, Run, burner, command_line
from tests.made_up import MIB as BYTES_OF_MIB
from tests.made_up import full_disk, header, mib, session
from tests.waiting import until

MIB = 2**20
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
UNTIL_NAMED = 'name=; until [ "$name" = sleep ]; do read -r name < /proc/$!/comm; done;'
"""In a shell, wait until the process in the background runs sleep, and is no copy of the shell any more."""
UNTIL_SAMPLED = (
    "count() { grep -c '^\\[' run.journal.jsonl; }; "
    "before=$(count); until [ $(count) -gt $((before + 1)) ]; do sleep 0.01; done;"
)
"""In a shell, wait for two samples."""


Recorded = Callable[..., Session]


@pytest.fixture
def recorded(nncf_tools: Run, tmp_path: pathlib.Path) -> Recorded:
    """Record quietly to a file and load it."""

    def record(*words: object, **options: Any) -> Session:  # noqa: ANN401 — passed on to subprocess
        result = nncf_tools("monitor", "-q", "-o", "run.json", *words, **options)
        assert result.returncode == 0, result.stderr
        return Session.load(tmp_path / "run.json")

    return record


def in_background(folder: pathlib.Path, *words: object, **options: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401 — passed on to subprocess
    """Start nncf-tools in a process group of its own."""
    return subprocess.Popen(command_line(*words), cwd=folder, start_new_session=True, **options)


def start_of(journal: pathlib.Path) -> dict[str, Any]:
    """Wait for the journal's first sample and return its start line."""
    text = until(lambda: journal.exists() and "\n[" in (text := journal.read_text()) and text, "a sample")
    assert text
    found: dict[str, Any] = next(json.loads(line)["start"] for line in text.splitlines() if line.startswith('{"start"'))
    return found


def samples_in(journal: pathlib.Path) -> int:
    """Return how many samples a journal holds."""
    return journal.read_text().count("\n[")


def is_written(path: pathlib.Path, text: str) -> bool:
    """Return whether a file exists and contains a text."""
    return path.exists() and text in path.read_text()


def resident(pid: int) -> int:
    """Return the RSS of a process from the kernel."""
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def until_gone(pid: int) -> None:
    """Wait until a process has been reaped."""
    until(lambda: not pathlib.Path(f"/proc/{pid}").exists(), "the end of a process")


@pytest.fixture
def truth(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return the file into which burners write their own figures."""
    return tmp_path / "truth"


def sums(truth: pathlib.Path) -> list[float]:
    """Return the figures that burners wrote, each summed over all lines."""
    lines = [map(float, line.split()) for line in truth.read_text().splitlines()]
    return [sum(column) for column in zip(*lines, strict=True)]


class TestFigures:
    @pytest.mark.long
    @pytest.mark.long
    def test_only_the_process_itself_without_children(self, recorded: Recorded, truth: pathlib.Path) -> None:
        """With --no-children, descendants are left out."""
        session = recorded("-i", 0.02, "--no-children", "--", *burner("levels", truth, 3, 30, 2))
        own, *_ = map(int, truth.read_text().split())

        assert len(session.processes) == 1
        assert session.peaks["rss"].sampled == pytest.approx(own, rel=0.02)

    def test_daemon_is_named_and_left(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """A daemon that outlives the command is named and left running."""
        script = f"setsid sleep {HANGING_S} >/dev/null 2>&1 & {UNTIL_NAMED} {UNTIL_SAMPLED} echo $! > pid; exit 4"
        result = nncf_tools("monitor", "-i", 0.02, "-o", "run.json", "sh", "-c", script)
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)

        assert result.returncode == 4
        assert "still running when the command ended, and not recorded further: sleep" in result.stderr

    @pytest.mark.long
    def test_wait_all_waits_for_daemons(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """With --wait-all, a daemon that outlives the command is recorded to its end."""
        daemon = "while test -e /proc/$0; do sleep 0.02; done; : > after"
        script = f"setsid sh -c '{daemon}' $$ & exit 4"
        result = nncf_tools("monitor", "-i", 0.02, "-o", "run.json", "--wait-all", "sh", "-c", script)
        session = Session.load(tmp_path / "run.json")

        assert result.returncode == 4
        assert (tmp_path / "after").exists()
        assert "still running" not in result.stderr
        assert session.duration_s > (session.processes[0].end_s or session.duration_s)

    @pytest.mark.long
    def test_pss_beside_rss(self, nncf_tools: Run, tmp_path: pathlib.Path, truth: pathlib.Path) -> None:
        """Memory shared by five processes counts five times in RSS and once in PSS, which the headline has."""
        words = ("-i", 0.02, "-o", "run.json", "-t", "rss", "-t", "pss", "--", *burner("copies", truth, 100, 4, "pss"))
        result = nncf_tools("monitor", *words)
        peaks = Session.load(tmp_path / "run.json").peaks
        rss, pss = sums(truth)

        assert rss > 4 * pss
        assert peaks["rss"].sampled == pytest.approx(rss, rel=0.02)
        assert peaks["pss"].sampled == pytest.approx(pss, rel=0.02)
        assert re.match(rf"Peak memory {peaks['pss'].sampled / MIB:.0f} MiB \(PSS; RSS of 5 processes: ", result.stderr)

    @pytest.mark.parametrize(
        ("interval", "samples"), [(0.05, 2), pytest.param(0.5, 1, marks=pytest.mark.long), (10, 0)]
    )
    def test_bracket_holds_a_spike(
        self, recorded: Recorded, truth: pathlib.Path, interval: float, samples: int
    ) -> None:
        """With any interval, the process's own high-water mark is within the bounds, which are narrow.

        A peak between samples is known from the kernel's high-water mark. With a single sample, the mark may belong to
        a child that the sample missed; then the bound also counts the sampled interpreter, about 10 MiB.
        """
        session = recorded("-i", interval, "--", *burner("spike", truth, 60, 0.04, samples))
        (mark,) = sums(truth)
        peak = session.peaks["rss"]

        assert mark > 60 * MIB
        assert peak.low == pytest.approx(mark, rel=0.02)
        assert mark * 0.98 <= (peak.high or 0) <= mark + 12 * MIB
        assert peak.low_from == "high_water_mark" or interval < 10

    def test_totals_are_those_of_wait4(self, recorded: Recorded, truth: pathlib.Path) -> None:
        """Final CPU time and faults match the kernel's figures of the command and all children that it waited for.

        The kernel reports CPU time of process and children, in user and kernel mode, in whole ticks each.
        """
        session = recorded("-i", 0.01, "--", *burner("rusage", truth, 4))
        cpu_s, minor = sums(truth)
        totals = {name: value or 0 for name, value in session.totals.items()}

        assert totals["cpu_user"] + totals["cpu_system"] == pytest.approx(cpu_s, abs=4.01 * TICK_S)
        assert totals["minor_faults"] == pytest.approx(minor, rel=0.1)
        for name in ("cpu_user", "cpu_system", "minor_faults", "read_chars"):
            assert list(session.samples[name]) == sorted(session.samples[name])

    @pytest.mark.parametrize("source", ["proc", pytest.param("psutil", marks=pytest.mark.long)])
    def test_tree_of_two_levels(
        self, recorded: Recorded, truth: pathlib.Path, monkeypatch: pytest.MonkeyPatch, source: str
    ) -> None:
        """Parent and child count together; with --per-process, every process has its RSS over time."""
        monkeypatch.setenv("_NNCF_TOOLS_SOURCE", source)
        session = recorded("--per-process", "-i", 0.02, "--", *burner("levels", truth, 2, 60, 2))
        largest = [max(process.series.rss) for process in session.processes if process.series]
        (rss,) = sums(truth)

        assert rss > 120 * MIB
        assert session.peaks["rss"].sampled == pytest.approx(rss, rel=0.02)
        assert len(largest) == 2
        assert largest == [process.peak_rss for process in session.processes]


class TestCommand:
    def test_arguments_arrive_unchanged(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """Spaces, dollars, stars, quotes, empty words, options and non-text bytes arrive unchanged."""
        words = ["a b", "$HOME", "*", "'\"", "", "-i", "--", "--quiet", "\udcff"]
        result = nncf_tools("monitor", "-q", "--no-plot", *burner("tell", "told.json", *words))
        told = json.loads((tmp_path / "told.json").read_text())

        assert result.returncode == 0
        assert told["arguments"] == [os.fsencode(word).decode("latin-1") for word in words]

    @pytest.mark.process
    def test_folder_input_and_environment_are_the_commands(self, tmp_path: pathlib.Path) -> None:
        """The command gets nncf-tools' folder, input and environment (plus the marks log), in any locale."""
        environment = {"PATH": os.environ["PATH"], "A": "b"}
        words = command_line("monitor", "-q", "-o", "r.json", *burner("tell", "told.json"))
        subprocess.run(
            words,
            cwd=tmp_path,
            env={**environment, "PYTHONPATH": str(pathlib.Path.cwd())},
            input=b"hello",
            check=True,
            timeout=99,
        )
        told = json.loads((tmp_path / "told.json").read_text())

        assert told["folder"] == str(tmp_path)
        assert told["input"] == "hello"
        assert told["environment"] == sorted(
            [
                "",
                "A=b",
                f"NNCF_TOOLS_MARKS={tmp_path / 'r.marks.jsonl'}",
                f"NNCF_TOOLS_MARKS_OWNER={os.geteuid()}",
                f"PATH={os.environ['PATH']}",
                f"PYTHONPATH={pathlib.Path.cwd()}",
            ]
        )

    def test_find_special_when_asked_for(self, nncf_tools: Run) -> None:
        """With --shell, one quoted string is a shell script."""
        result = nncf_tools("monitor", "-q", "--no-plot", "--shell", "echo one | tr a-z A-Z; exit 5")

        assert result.stdout == "ONE\n"
        assert result.returncode == 5

    def test_script_without_interpreter_line(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """A script without a #! line is run by sh, as env and time would run it."""
        (tmp_path / "script").write_text('echo "$0 $1"\n')
        (tmp_path / "script").chmod(0o755)

        assert nncf_tools("monitor", "-q", "--no-plot", "./script", "a b").stdout == "./script a b\n"

    @pytest.mark.long
    @pytest.mark.process
    def test_folder_that_was_removed(self, tmp_path: pathlib.Path) -> None:
        """A recording works even if the working folder was removed."""
        words = " ".join(command_line("monitor", "-q", "-o", tmp_path / "run.json", "true"))
        script = f"mkdir gone && cd gone && rmdir ../gone && PYTHONPATH={pathlib.Path.cwd()} {words}"
        result = subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)

        assert (result.returncode, result.stderr) == (0, "")
        assert Session.load(tmp_path / "run.json").cwd == ""


class TestExitStatus:
    @pytest.mark.parametrize(
        ("words", "expected"),
        [
            (["sh", "-c", "exit 7"], 7),
            (["sh", "-c", "kill -TERM $$"], 128 + signal.SIGTERM),
            (["sh", "-c", "kill -KILL $$"], 128 + signal.SIGKILL),
            (["no-such-program"], 127),
            (["./no-such-file"], 127),
            (["./plain.txt"], 126),
            (["/"], 126),
        ],
    )
    def test_is_the_commands(self, nncf_tools: Run, tmp_path: pathlib.Path, words: list[str], expected: int) -> None:
        """The status is the command's, or a shell's status for a command that was not started or was killed."""
        (tmp_path / "plain.txt").write_text("not a program")
        result = nncf_tools("monitor", "-q", "--no-plot", *words)

        assert result.returncode == expected

    def test_nothing_is_left_when_nothing_ran(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """A command that cannot be started gives one line and leaves no file, also if only exec fails."""
        program = tmp_path / "broken"
        program.write_text("#!/no/such/interpreter\n")
        program.chmod(0o755)
        result = nncf_tools("monitor", "./broken")

        assert result.returncode == 127
        assert len(result.stderr.splitlines()) == 1
        assert [path.name for path in tmp_path.iterdir()] == ["broken"]

    @pytest.mark.process
    @pytest.mark.parametrize(
        "stream", ["2>/dev/full", *(pytest.param(of, marks=pytest.mark.long) for of in ("2>&-", ">&-"))]
    )
    def test_survives_a_lost_terminal(self, tmp_path: pathlib.Path, stream: str) -> None:
        """If our output cannot be printed, the recording and the command's status are kept."""
        words = " ".join(command_line("monitor", "--no-plot", "-o", "run.json", "sh", "-c", "'exit 7'"))
        status = subprocess.run(["sh", "-c", f"{words} {stream}"], cwd=tmp_path, check=False).returncode

        assert (status, (tmp_path / "run.json").exists()) == (7, True)

    @pytest.mark.long
    def test_survives_a_broken_plot_library(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """If pictures cannot be drawn, one line says why; session and status are kept."""
        result = nncf_tools("monitor", "-q", "-o", "run.json", "--plot", "sh", "-c", "exit 7", env={"MPLBACKEND": "x"})

        assert (result.returncode, (tmp_path / "run.json").exists()) == (7, True)
        assert result.stderr.startswith(
            "nncf-tools: error: the session is written to run.json, but files beside it are missing: "
        )
        assert len(result.stderr.splitlines()) == 1


class TestSignals:
    @pytest.mark.process
    def test_terminate_reaches_the_command_once(self, tmp_path: pathlib.Path) -> None:
        """SIGTERM to the command line is passed on once, and the session is still written."""
        signals = tmp_path / "signals"
        process = in_background(tmp_path, "monitor", "-q", "-o", "run.json", *burner("signalled", signals))
        until(lambda: is_written(signals, "ready"), "the command's handlers")
        process.terminate()
        status = process.wait(HANGING_S)

        assert status == 9
        assert signals.read_text() == "ready\nSIGTERM\n"
        assert (tmp_path / "run.json").exists()

    @pytest.mark.process
    def test_interrupt_from_a_terminal(self, tmp_path: pathlib.Path) -> None:
        """Ctrl-C in a terminal ends the command; the summary is shown and the session written."""
        terminal = pexpect.spawn(
            sys.executable,
            command_line("monitor", "-o", "run.json", "sleep", "60")[1:],
            cwd=str(tmp_path),
            env={**os.environ, "NO_COLOR": "1"},
            timeout=HANGING_S,
            encoding="utf-8",
        )
        start_of(tmp_path / "run.journal.jsonl")
        terminal.sendintr()
        terminal.expect(pexpect.EOF)
        terminal.close()

        assert terminal.exitstatus == 128 + signal.SIGINT
        assert "killed by SIGINT" in terminal.before
        assert "\r\nrun.json · which line held it: nncf-tools profile sleep 60\r\n" in terminal.before

    @pytest.mark.process
    def test_hang_up_of_a_session_leader_reaches_the_command(self, tmp_path: pathlib.Path) -> None:
        """If the terminal closes, the kernel signals the session leader, and we signal the command."""
        signals = tmp_path / "signals"
        words = command_line("monitor", "-q", "-o", "run.json", *burner("signalled", signals))
        terminal = pexpect.spawn(sys.executable, words[1:], cwd=str(tmp_path), timeout=HANGING_S)
        until(lambda: is_written(signals, "ready"), "the command's handlers")
        os.close(terminal.child_fd)
        until((tmp_path / "run.json").exists, "the session")
        terminal.closed = True

        assert signals.read_text() == "ready\nSIGHUP\n"


class TestKills:
    @pytest.mark.process
    def test_killed_sampler(self, tmp_path: pathlib.Path) -> None:
        """Without the sampler, the command continues, its status is returned and the journal becomes the session."""
        process = in_background(
            tmp_path, "monitor", "-o", "run.json", *burner("touch", 20, "go", 6), stderr=subprocess.PIPE
        )
        start = start_of(tmp_path / "run.journal.jsonl")
        os.kill(start["sampler_pid"], signal.SIGKILL)
        until_gone(start["sampler_pid"])
        (tmp_path / "go").touch()
        _, errors = process.communicate(timeout=HANGING_S)
        session = Session.load(tmp_path / "run.json")

        assert process.returncode == 6
        assert "the sampler was killed" in errors.decode()
        assert not session.finished
        assert session.exit is not None
        assert session.exit.code == 6

    @pytest.mark.process
    def test_killed_command_line(self, tmp_path: pathlib.Path) -> None:
        """Without the command line, sampler and command run to the end, and the journal is complete."""
        journal = tmp_path / "run.journal.jsonl"
        process = in_background(tmp_path, "monitor", "-i", 0.02, "-o", "run.json", *burner("touch", 20, "go", 6))
        start_of(journal)
        process.kill()
        process.wait(HANGING_S)
        before = samples_in(journal)
        until(lambda: samples_in(journal) > before + 1, "samples after the kill")
        (tmp_path / "go").touch()
        until(lambda: '\n{"end":' in journal.read_text(), "the end")
        session = Session.load(journal)

        assert session.finished
        assert session.exit is not None
        assert session.exit.code == 6
        assert len(session.samples) > before + 1


class TestAttach:
    @pytest.mark.process
    def test_process_is_recorded_until_it_ends(self, tmp_path: pathlib.Path) -> None:
        """--pid records a running process, names its command and ends with it."""
        command = burner("touch", 50, tmp_path / "go")
        journal = tmp_path / "run.journal.jsonl"
        with subprocess.Popen(command) as process:
            until(lambda: resident(process.pid) > 50 * MIB, "memory")
            tool = in_background(tmp_path, "monitor", "-q", "-i", 0.02, "-o", "run.json", "--pid", process.pid)
            start_of(journal)
            (tmp_path / "go").touch()
            statuses = process.wait(HANGING_S), tool.wait(HANGING_S)
        session = Session.load(tmp_path / "run.json")

        assert statuses == (0, 0)
        assert session.attached_to == process.pid
        assert session.command == command
        assert (session.peaks["rss"].sampled or 0) > 50 * MIB

    @pytest.mark.long
    @pytest.mark.process
    def test_our_own_processes_are_left_out(self, tmp_path: pathlib.Path) -> None:
        """Attached to the shell that started it, the recording includes neither command line nor sampler."""
        words = " ".join(command_line("monitor", "-q", "-o", "run.json", "--duration", 0.1))
        for source in ("proc", "psutil"):
            script = f"_NNCF_TOOLS_SOURCE={source} {words} --force --pid $$; true"
            subprocess.run(["sh", "-c", script], cwd=tmp_path, check=True, timeout=HANGING_S)

            assert [process.name for process in Session.load(tmp_path / "run.json").processes] == ["sh"]

    @pytest.mark.process
    def test_terminate_ends_the_recording_only(self, tmp_path: pathlib.Path) -> None:
        """SIGTERM ends the recording of an attached process, but not the process."""
        sleeper = subprocess.Popen(["sleep", "60"])
        process = in_background(tmp_path, "monitor", "-q", "-o", "run.json", "--pid", sleeper.pid)
        start_of(tmp_path / "run.journal.jsonl")
        process.terminate()
        status = process.wait(HANGING_S)
        still_runs = sleeper.poll() is None
        sleeper.kill()
        sleeper.wait()

        assert (status, still_runs) == (0, True)


class TestFiles:
    @pytest.mark.parametrize("command", [pytest.param("monitor", marks=pytest.mark.long), "profile"])
    def test_new_folder_for_each_run(self, nncf_tools: Run, tmp_path: pathlib.Path, command: str) -> None:
        """A new folder has session and picture, ``latest`` points to it; --plot adds the page of a short run, too."""
        written = []
        for options in (["--no-plot"], ["--plot"]):
            nncf_tools(command, "-q", *options, "true")
            written.append({path.name for path in (tmp_path / "memory_logs/latest").iterdir()})

        assert written == [{"session.json"}, {"session.json", "session.png", "session.html"}]
        assert len(list((tmp_path / "memory_logs").iterdir())) == 3

    def test_existing_output_is_kept(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """Existing files are not overwritten without --force, and the command is not started."""
        (tmp_path / "run.json").write_text("precious")
        result = nncf_tools("monitor", "-o", "run.json", "touch", "started")

        assert result.returncode == 2
        assert result.stderr.splitlines() == [
            "nncf-tools: error: option --output: 'run.json' exists; choose another name or give --force"
        ]
        assert [path.name for path in tmp_path.iterdir()] == ["run.json"]

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("run.json", "'run.json' is a device or pipe; a file name expected"),
            ("run.journal.jsonl", "'run.journal.jsonl' is a symbolic link; name the target of the link"),
            ("run.marks.json", "'run.marks.json' is a symbolic link; name the target of the link"),
        ],
    )
    def test_only_a_file_is_replaced(self, nncf_tools: Run, tmp_path: pathlib.Path, name: str, message: str) -> None:
        """A pipe and a link of another file are refused by name, even with --force, and the command is not started."""
        if name == "run.json":
            os.mkfifo(tmp_path / name)
        else:
            (tmp_path / name).symlink_to("missing")
        result = nncf_tools("monitor", "--force", "-o", "run.json", "touch", "started")

        assert result.returncode == 2
        assert f"option --output: {message}" in result.stderr
        assert [path.name for path in tmp_path.iterdir()] == [name]

    @pytest.mark.parametrize("option", ["--output=/proc/locked/run.json", "--log-dir=/proc/locked"])
    def test_unwritable_place(self, nncf_tools: Run, tmp_path: pathlib.Path, option: str) -> None:
        """If nothing can be written, not even by root, the command is not started."""
        result = nncf_tools("monitor", option, "touch", "started")

        assert result.returncode == 2
        assert f"option {option.partition('=')[0]}: cannot write" in result.stderr
        assert list(tmp_path.iterdir()) == []


class TestBadInput:
    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (
                ["--interval", "0", "true"],
                "option --interval: a number of seconds from 0.001 to a year expected, found 0",
            ),
            (["--duration", "-1", "true"], "option --duration: a time"),
            (["--pid", "1", "true"], "option --pid: either a command or --pid, not both"),
            (["--stacks", "--stacks-budget", "51%", "true"], "option --stacks-budget"),
            (["--repeat", "2", "--pid", "1"], "option --repeat: only with a command, not with --pid"),
            (["--warmup", "2", "--pid", "1"], "option --warmup: only with a command, not with --pid"),
            (["--prepare", "true", "--pid", "1"], "option --prepare: only with a command, not with --pid"),
            (["--cleanup", "true", "--pid", "1"], "option --cleanup: only with a command, not with --pid"),
            (["--repeat", "2", "--live", "--capture", "out", "true"], "option --repeat: not with --capture"),
            (["--warmup", "2", "--capture", "out", "true"], "option --warmup: not with --capture"),
            (["--shell", "echo", "one"], "option --shell: one quoted string expected"),
            (["echo 'open"], "argument COMMAND:"),
            pytest.param(
                ["--type", "rss,device", "true"],
                "option --type: 'device' is not available here: there is no GPU or NPU",
                marks=pytest.mark.skipif(bool(list_device_metrics()), reason="there is a GPU or NPU"),
            ),
            (["-o", "n" * 300, "true"], "File name too long"),
        ],
    )
    def test_is_one_line_that_names_the_option(
        self, in_process: Run, tmp_path: pathlib.Path, words: list[str], message: str
    ) -> None:
        """A wrong option gives one line that names it and status 2, and leaves no files."""
        result = in_process("monitor", *words)

        assert result.returncode == 2
        assert len(result.stderr.splitlines()) == 1
        assert message in result.stderr
        assert list(tmp_path.iterdir()) == []

    def test_metric_of_another_platform(self, in_process: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        """A metric that this platform does not have is refused."""
        monkeypatch.setenv("_NNCF_TOOLS_SOURCE", "psutil")
        result = in_process("monitor", "--type", "pss", "true")

        assert (result.returncode, result.stderr) == (
            2,
            "nncf-tools: error: option --type: 'pss' is not available here: not on this platform\n",
        )


PHASES = [sys.executable, str(BURNERS / "phases.py"), "300"]


class TestMarks:
    @pytest.mark.long
    def test_operations_of_a_script(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """Each operation has its memory and its children's I/O; report, session, marks and picture are written."""
        result = nncf_tools("profile", "-o", "run.json", "--plot", *PHASES)
        of = Session.load(tmp_path / "run.json")
        loading, export, compilation, cleanup = of.operations
        grown, shrunk = map(int, (tmp_path / "phases.txt").read_text().split())

        assert (result.returncode, result.stdout) == (0, "done\n")
        assert [phase.name for phase in of.operations] == ["Model Loading", "Export", "Compilation", "Cleanup"]
        assert loading.delta == pytest.approx(grown, abs=BYTES_OF_MIB)
        assert export.read_chars == pytest.approx(300 * BYTES_OF_MIB, rel=0.01)
        assert compilation.has_peak
        assert cleanup.delta == pytest.approx(shrunk, abs=BYTES_OF_MIB)
        assert grown >= 60 * BYTES_OF_MIB > 0 > -150 * BYTES_OF_MIB >= shrunk
        assert "during Compilation" in result.stderr
        assert sorted(path.name for path in tmp_path.glob("run*")) == [
            "run.html",
            "run.json",
            "run.marks.json",
            "run.png",
        ]

    def test_parallel_tasks(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """Each of parallel tasks is an outermost operation, with its own inner one inside, and ends by itself."""
        nncf_tools("monitor", "-q", "-i", "0.02", "-o", "run.json", "--", sys.executable, BURNERS / "tasks.py")
        found = Session.load(tmp_path / "run.json").operations
        outer = [one for one in found if one.depth == 0]

        assert [one.name for one in outer] == [f"Task {number}" for number in range(6)]
        assert [one.end_s for one in outer] == sorted(one.end_s for one in outer)
        assert [(one.parent.name, one.name) for one in found if one.parent] == [
            (f"Task {number}", f"Inside {number}") for number in range(6)
        ]

    @pytest.mark.long
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

    @pytest.mark.parametrize(
        ("then", "sleeps_s"),
        [
            ("sleep", 0.1),  # a sample between the mark and exec: else, the mark may be of the program after exec
            ("marks", 0),
        ],
    )
    def test_exec(self, nncf_tools: Run, tmp_path: pathlib.Path, then: str, sleeps_s: float) -> None:
        """An operation that is open when its process calls exec ends then; the next program has its own operations."""
        marks = "import nncftools, time\nwith nncftools.operation('New'): time.sleep(0.7)"
        next_words = ["/bin/sleep", "1"] if then == "sleep" else [sys.executable, "-c", marks]
        script = (
            "import nncftools, os, sys, time\n"
            "nncftools.operation('Load').__enter__()\n"
            f"time.sleep({sleeps_s})\n"
            "os.execv(sys.argv[1], sys.argv[1:])"
        )
        result = nncf_tools("monitor", "-q", "-i", "0.05", "-o", "run.json", sys.executable, "-c", script, *next_words)
        run = Session.load(tmp_path / "run.json")
        load, *others = run.operations

        assert result.returncode == 0, result.stderr
        assert (load.name, load.error, load.is_parallel) == ("Load", "unfinished", False)
        assert load.end_s < run.duration_s - 0.5
        assert load.duration_s >= sleeps_s
        assert [(other.name, other.depth, other.error) for other in others] == [("New", 0, None)] * (then == "marks")
        assert all(load.end_s <= other.start_s and other.duration_s >= 0.7 for other in others)

    def test_code_that_is_hidden(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """A process whose addresses the sampler may read no longer, and may read again, runs the same program."""
        script = (
            "import ctypes, nncftools, time\n"
            "with nncftools.operation('Main'):\n"
            "    for is_dumpable in (1, 0, 1):\n"
            "        ctypes.CDLL(None).prctl(4, is_dumpable, 0, 0, 0)\n"
            "        for _ in range(4): kept = bytearray(1 << 20); time.sleep(0.05)\n"
        )
        drop = ctypes.CDLL(None).prctl  # CAP_SYS_PTRACE, from the bounding set
        words = ("monitor", "-q", "-i", "0.02", "-o", "run.json", "--", sys.executable, "-c", script)
        result = nncf_tools(*words, preexec_fn=lambda: drop(24, 19, 0, 0, 0))
        (main,) = Session.load(tmp_path / "run.json").operations

        assert result.returncode == 0, result.stderr
        assert (main.name, main.error) == ("Main", None)
        assert main.duration_s >= 0.6

    def test_short_summary(self, nncf_tools: Run) -> None:
        """Of a run without operations, the summary has at most 8 lines, also from the second run on."""
        code = "import time; time.sleep(0.6); b = bytearray(50 << 20); time.sleep(0.3)"
        nncf_tools("profile", "--no-plot", sys.executable, "-c", code)
        result = nncf_tools("profile", "-i", "0.3", sys.executable, "-c", code)

        headline, *rows, enough, last = result.stderr.splitlines()
        assert len(rows) <= 5, result.stderr
        assert headline.startswith("Peak memory ")
        assert any(re.fullmatch(r"  +~?5\d MiB  <string>:1", row) for row in rows), result.stderr
        assert re.fullmatch(r"Would work with \d+ MiB · took \d\.\d s", enough)
        assert last.startswith("memory_logs/latest/session.")

    def test_failure(self, nncf_tools: Run) -> None:
        """An exit status other than 0 is in the line of the duration; a signal is in the verdict, which comes first."""
        failed = nncf_tools("monitor", "--no-plot", sys.executable, "-c", "raise SystemExit(3)").stderr
        ended = nncf_tools("monitor", "--no-plot", sys.executable, "-c", "import os; os.kill(os.getpid(), 15)").stderr

        assert re.search(r"^Would work with .* · took \d\.\d+ s · exit status 3$", failed, re.MULTILINE)
        assert re.fullmatch(r"The command python\d* \(pid \d+\) was ended by SIGTERM.*", ended.splitlines()[0])

    def test_option_behind_the_command(self, nncf_tools: Run) -> None:
        """An option of ours behind the command goes to the command, and a note says so."""
        result = nncf_tools("monitor", "-q", "--no-plot", "-o", "run.json", "--", "echo", "--live")

        assert result.stdout == "--live\n"
        assert "note: the command gets --live; an option of nncf-tools comes before the command" in result.stderr

    @pytest.mark.parametrize("name", ["run.json", "./run.png"])
    def test_capture_is_no_file_of_the_recording(self, in_process: Run, tmp_path: pathlib.Path, name: str) -> None:
        """Output that the session, or another file of the recording, would replace is refused before anything runs."""
        words = ("-q", "--plot", "-o", tmp_path / "run.json", "--capture", name, "--", "touch", "ran")
        result = in_process("monitor", *words)

        assert result.returncode == UsageError.exit_code
        assert result.stderr.endswith(f"{str(pathlib.Path(name))!r} is a file of the recording; choose another name\n")
        assert not (tmp_path / "ran").exists()

    def test_capture_on_a_full_disk(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """A captured file that lacks output is told in one line; the command's own output and status are as without."""
        script = "import os, sys; [print('y' * 99) for _ in range(3000)]; sys.exit(3)"
        words = ("-o", "run.json", "--capture", "out.txt", "--", sys.executable, "-c", script)
        with full_disk(100_000):
            result = nncf_tools("monitor", "-q", *words)

        assert result.returncode == 3
        assert result.stdout == ("y" * 99 + "\n") * 3000
        assert result.stderr.endswith("option --capture: the rest of 'out.txt' is missing: File too large\n")
        assert result.stderr.count("\n") == 1
        assert (tmp_path / "out.txt").stat().st_size <= 100_000

    def test_catalogued_and_named_calls(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """Calls of the catalogue and of --mark-call are marked in an unchanged script; --no-auto marks none."""
        (tmp_path / "mine.py").write_text("def fit():\n    return 'fitted'\n")
        module = tmp_path / "nncf/quantization/quantize_model.py"
        module.parent.mkdir(parents=True)
        module.write_text("def compress_weights(model):\n    return model + 1\n")
        code = "import mine, nncf.quantization.quantize_model as nncf\nprint(nncf.compress_weights(1), mine.fit())\n"
        (tmp_path / "run.py").write_text(code)
        script = (sys.executable, "run.py")
        result = nncf_tools("profile", "-q", "--no-plot", "-o", "run.json", "--mark-call", "mine:fit=Training", *script)
        nncf_tools("profile", "-q", "--no-plot", "-o", "off.json", "--no-auto", *script)
        marks = Session.load(tmp_path / "run.json").marks

        assert result.stdout == "2 fitted\n"
        assert [(mark.name, mark.source) for mark in marks] == [("Weight Compression", "auto"), ("Training", "auto")]
        assert Session.load(tmp_path / "off.json").marks == []


class TestProfileBadInput:
    @pytest.mark.parametrize(
        ("words", "complaint"),
        [
            (["--mark-call", "nonsense", "true"], "option --mark-call: package.module:function=Name or"),
            (["--no-auto", "--mark-call", "a:b=c", "true"], "either --no-auto or --mark-call, not both"),
            (["--depth", "0", "true"], "--depth"),
        ],
    )
    def test_options(self, in_process: Run, tmp_path: pathlib.Path, words: list[str], complaint: str) -> None:
        """Impossible options are refused in one line before anything starts, and no files are left."""
        result = in_process("profile", *words)

        assert result.returncode == 2
        assert complaint in result.stderr
        assert len(result.stderr.splitlines()) == 1
        assert list(tmp_path.iterdir()) == []

    def test_keeps_what_is_there(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """Files next to the session are kept unless --force is given; then a stale sidecar is removed."""
        (tmp_path / "run.marks.csv").write_text("name,start_s\nold,0\n")
        refused = nncf_tools("profile", "-q", "-o", "run.json", "true")
        forced = nncf_tools("profile", "-q", "--no-plot", "--force", "-o", "run.json", "true")

        assert (refused.returncode, forced.returncode) == (2, 0)
        assert "run.marks.csv" in refused.stderr
        assert not (tmp_path / "run.marks.csv").exists()


class TestMarkCommand:
    def test_bad_input(self, nncf_tools: Run) -> None:
        """An empty name and a missing log give one line each; without a recording, nothing is printed."""
        alone = nncf_tools("mark", "Export")
        empty = nncf_tools("mark", " ")
        gone = nncf_tools("mark", "a", env={"NNCF_TOOLS_MARKS": "/no/such/log"})

        assert (alone.returncode, empty.returncode, gone.returncode) == (0, 2, 1)
        assert alone.stdout + alone.stderr == ""
        assert "argument NAME" in empty.stderr
        assert "/no/such/log" in gone.stderr


class TestReport:
    @pytest.fixture(autouse=True)
    def _session(self, tmp_path: pathlib.Path) -> None:
        """Write a session of three seconds, and its sidecar without marks, as ``profile`` leaves them."""
        session({"rss": mib(10, 50, 50, 20)}, duration_s=3.0).save(tmp_path / "run.json")
        (tmp_path / "run.marks.json").write_text("[]")

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

        assert "\n1 Export " in result.stdout
        assert "1 mark could not be read" in " ".join(result.stdout.split())
