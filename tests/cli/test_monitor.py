from __future__ import annotations

import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import time
from typing import Any

import pexpect
import pytest

from nncftools import Session
from tests.conftest import HANGING_S, Run, burner, command_line

MIB = 2**20
INTERNAL = 0b11 << 31
"""Signals 32 and 33 belong to glibc, whose posix_spawn leaves them ignored; no program can use them."""


def recorded(run: Run, *words: object, **options: Any) -> Session:  # noqa: ANN401 — passed on to subprocess
    """Record quietly to a file and load it."""
    result = run("monitor", "-q", "-o", "run.json", *words, **options)
    assert result.returncode == 0, result.stderr
    return Session.load(run_folder(run) / "run.json")


def run_folder(run: Run) -> pathlib.Path:
    """Return the folder in which ``run`` works."""
    closure = run.__closure__  # type: ignore[attr-defined]
    return next(cell.cell_contents for cell in closure if isinstance(cell.cell_contents, pathlib.Path))


def in_background(folder: pathlib.Path, *words: object, **options: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401 — passed on to subprocess
    """Start nncf-tools in a process group of its own."""
    return subprocess.Popen(command_line(*words), cwd=folder, start_new_session=True, **options)


def wait_for(path: pathlib.Path, text: str) -> None:
    """Wait until ``text`` stands in the file."""
    deadline = time.monotonic() + HANGING_S
    while not (path.exists() and text in path.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def start_of(journal: pathlib.Path) -> dict[str, Any]:
    """Wait for the journal's start line and return it."""
    wait_for(journal, '"start":')
    wait_for(journal, "\n[")
    found: dict[str, Any] = next(
        json.loads(line)["start"] for line in journal.read_text().splitlines() if line.startswith('{"start"')
    )
    return found


class TestFigures:
    def test_peak_of_touched_memory(self, nncf_tools: Run) -> None:
        """200 MiB touched for a second are seen within 2 %, beside an interpreter that is measured in the same way."""
        empty = recorded(nncf_tools, "--", *burner("touch", 0, 0.5))
        full = recorded(nncf_tools, "--force", "--", *burner("touch", 200, 1))
        touched = (full.peaks["rss"].sampled or 0) - (empty.peaks["rss"].sampled or 0)

        assert touched == pytest.approx(200 * MIB, rel=0.02)

    def test_tree_of_two_levels(self, nncf_tools: Run) -> None:
        """Parent and grandchild count together: the sum is larger than the largest single process can be."""
        empty = recorded(nncf_tools, "--", *burner("levels", 2, 0, 0.5))
        full = recorded(nncf_tools, "--force", "--", *burner("levels", 2, 60, 1))
        touched = (full.peaks["rss"].sampled or 0) - (empty.peaks["rss"].sampled or 0)

        assert touched == pytest.approx(120 * MIB, rel=0.02)

    def test_only_the_process_itself_without_children(self, nncf_tools: Run) -> None:
        """With --no-children, descendants are left out."""
        session = recorded(nncf_tools, "--no-children", "--", *burner("levels", 3, 30, 0.5))

        assert len(session.processes) == 1
        assert (session.peaks["rss"].sampled or 0) < 60 * MIB

    def test_orphan_stays_in_the_tree(self, nncf_tools: Run) -> None:
        """A daemon that forked twice and has a session of its own is counted."""
        session = recorded(nncf_tools, "--", *burner("daemon", 100, 1))

        assert (session.peaks["rss"].sampled or 0) > 100 * MIB

    def test_spike_between_samples(self, nncf_tools: Run) -> None:
        """A peak that no sample saw is known from the kernel's high-water mark."""
        session = recorded(nncf_tools, "-i", 5, "--", *burner("touch", 100, 0))

        assert session.peaks["rss"].low_from == "high_water_mark"
        assert session.peaks["rss"].low == pytest.approx(108 * MIB, rel=0.06)

    def test_cpu_of_a_burning_child(self, nncf_tools: Run) -> None:
        """CPU time agrees with what the kernel says of all children, within two ticks."""
        script = "import time\nwhile time.process_time() < 0.5: pass"
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(["sh", "-c", f"{sys.executable} -S -E -c '{script}'; true"], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        alone_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        session = recorded(nncf_tools, "--", "sh", "-c", f"{sys.executable} -S -E -c '{script}'; true")
        cpu_s = (session.totals["cpu_user"] or 0) + (session.totals["cpu_system"] or 0)

        assert cpu_s == pytest.approx(alone_s, abs=0.04)

    def test_bytes_read_by_a_child(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """What a child read through system calls is in the total, and the counters never fall."""
        session = recorded(nncf_tools, "-i", 0.01, "--", *burner("read", tmp_path / "data", 100))
        column = session.samples["read_chars"]

        assert session.totals["read_chars"] == pytest.approx(100 * MIB, rel=0.01)
        assert list(column) == sorted(column)

    def test_wait_all_waits_for_daemons(self, nncf_tools: Run) -> None:
        """A daemon that outlives the command is named and left; with --wait-all it is recorded to its end."""
        words = ["sh", "-c", "setsid sleep 0.9 & sleep 0.2; exit 4"]
        left = nncf_tools("monitor", "--no-plot", "-o", "left.json", *words)
        waited = nncf_tools("monitor", "--no-plot", "-o", "waited.json", "--wait-all", *words)

        assert (left.returncode, waited.returncode) == (4, 4)
        assert "still running when the command ended, and not recorded further: sleep" in left.stderr
        assert "still running" not in waited.stderr
        assert Session.load(run_folder(nncf_tools) / "waited.json").duration_s > 0.6

    def test_forked_copies_are_explained(self, nncf_tools: Run) -> None:
        """Copies of a 300 MiB process make the sum read several times too much; the report says so beside it."""
        result = nncf_tools("monitor", "--no-plot", "--", *burner("copies", 300, 4, 1))
        words = " ".join(result.stderr.split())

        assert "forked copies share pages: 4 of the processes at the RSS peak are forked copies" in words
        assert "the largest single process held 30" in words

    def test_pss_beside_rss(self, nncf_tools: Run) -> None:
        """Memory shared by five processes is five times in RSS and once in PSS, and the report says which to take."""
        result = nncf_tools(
            "monitor", "--no-plot", "-o", "run.json", "-t", "rss", "-t", "pss", "--", *burner("copies", 200, 4, 2)
        )
        peaks = Session.load(run_folder(nncf_tools) / "run.json").peaks

        assert peaks["rss"].sampled == pytest.approx(5 * 205 * MIB, rel=0.03)
        assert peaks["pss"].sampled == pytest.approx(204 * MIB, rel=0.03)
        assert "to size a machine, take PSS" in " ".join(result.stderr.split())

    def test_parts_of_rss_add_up(self, nncf_tools: Run) -> None:
        """Anonymous, file-backed and shared memory together are RSS, and touched memory is anonymous."""
        session = recorded(nncf_tools, "-t", "all", "--", *burner("touch", 100, 1))
        peaks = {name: peak.sampled or 0 for name, peak in session.peaks.items()}

        assert peaks["anon"] + peaks["file"] + peaks["shmem"] == pytest.approx(peaks["rss"], rel=0.03)
        assert peaks["anon"] > 100 * MIB
        assert peaks["uss"] > 100 * MIB

    @pytest.mark.parametrize("interval", [0.05, 0.5, 10])
    def test_bracket_holds_a_spike(self, nncf_tools: Run, tmp_path: pathlib.Path, interval: float) -> None:
        """Whatever the interval, the process's own high-water mark lies in the bracket, which is narrow."""
        session = recorded(nncf_tools, "-i", interval, "--", *burner("spike", tmp_path / "truth", 60, 0.04))
        truth = int((tmp_path / "truth").read_text())
        low, high = session.peaks["rss"].low or 0, session.peaks["rss"].high or 0

        assert low == pytest.approx(truth, rel=0.02)
        assert truth * 0.98 <= high <= truth * 1.1

    def test_every_exit_is_accounted_for(self, nncf_tools: Run) -> None:
        """With the privilege, every one of 300 short-lived children is in the session; without, the session says so."""
        script = "i=0; while [ $i -lt 300 ]; do /bin/true; i=$((i+1)); done; exit 3"
        session = recorded(nncf_tools, "--wait-all", "--", "sh", "-c", f"sh -c '{script}'; true")
        accounting = session.sampler.exit_accounting

        assert accounting == ("complete" if os.getuid() == 0 else None)
        assert accounting is None or len(session.processes) == 302
        assert accounting is None or [p.exit.code for p in session.processes if p.exit and p.exit.code] == [3]

    def test_totals_are_those_of_wait4(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """CPU time and faults at the end are what the kernel tells of the command and all that it waited for."""
        session = recorded(nncf_tools, "-i", 0.01, "--", *burner("rusage", tmp_path / "truth", 4))
        user, system, minor, _ = json.loads((tmp_path / "truth").read_text())
        totals = {name: value or 0 for name, value in session.totals.items()}

        assert totals["cpu_user"] + totals["cpu_system"] == pytest.approx(user + system, abs=0.03)
        assert totals["minor_faults"] == pytest.approx(minor, rel=0.1)
        for name in ("cpu_user", "cpu_system", "minor_faults", "read_chars"):
            assert list(session.samples[name]) == sorted(session.samples[name])

    def test_series_of_each_process(self, nncf_tools: Run) -> None:
        """With --per-process, every process has its RSS over time."""
        session = recorded(nncf_tools, "--per-process", "-i", 0.02, "--", *burner("levels", 2, 30, 0.5))
        largest = [max(process.series.rss) for process in session.processes if process.series]

        assert len(largest) == 2
        assert largest == [process.peak_rss for process in session.processes]

    def test_long_recording_stays_small(self, nncf_tools: Run) -> None:
        """Beyond --max-samples neighbours are merged, the peak stays exact, and the session says so."""
        session = recorded(nncf_tools, "-i", 0.002, "--max-samples", 100, "--", *burner("touch", 100, 2.5))

        assert len(session.samples) <= 100
        assert (session.sampler.taken or 0) > len(session.samples)
        assert session.peaks["rss"].sampled == pytest.approx(session.processes[0].high_water_mark, rel=0.02)
        assert any("neighbours merged" in warning for warning in session.warnings)

    def test_psutil_gives_the_same(self, nncf_tools: Run) -> None:
        """The source for macOS and Windows finds the same memory, processes and exit status."""
        session = recorded(nncf_tools, "--source", "psutil", "--", *burner("levels", 2, 60, 0.6))

        assert session.peaks["rss"].sampled == pytest.approx(136 * MIB, rel=0.06)
        assert len(session.processes) == 2
        assert session.exit is not None
        assert session.exit.code == 0


class TestCommand:
    def test_arguments_arrive_unchanged(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """Spaces, dollars, stars, quotes, empty words, options and bytes that are no text arrive as given."""
        words = ["a b", "$HOME", "*", "'\"", "", "-i", "--", "--quiet", "\udcff"]
        result = nncf_tools("monitor", "-q", "--no-plot", *burner("tell", "told.json", *words))
        told = json.loads((tmp_path / "told.json").read_text())

        assert result.returncode == 0
        assert told["arguments"] == [os.fsencode(word).decode("latin-1") for word in words]

    def test_folder_input_and_environment_are_the_commands(self, tmp_path: pathlib.Path) -> None:
        """Folder, input and environment (plus where marks go) are those that nncf-tools was given, in any locale."""
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
                f"PATH={os.environ['PATH']}",
                f"PYTHONPATH={pathlib.Path.cwd()}",
            ]
        )

    def test_output_passes_through(self, nncf_tools: Run) -> None:
        """Standard output holds the command's words and none of ours."""
        result = nncf_tools("monitor", "--no-plot", "echo", "its own words")

        assert result.stdout == "its own words\n"

    def test_one_quoted_string_is_split_without_a_shell(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """A single word with spaces is split, and nothing in it is expanded."""
        line = " ".join(burner("tell", "told.json", "$HOME", "'a b'"))
        nncf_tools("monitor", "-q", "--no-plot", line)
        told = json.loads((tmp_path / "told.json").read_text())

        assert told["arguments"] == ["$HOME", "a b"]

    def test_shell_only_when_asked_for(self, nncf_tools: Run) -> None:
        """With --shell, one quoted string is a script."""
        result = nncf_tools("monitor", "-q", "--no-plot", "--shell", "echo one | tr a-z A-Z; exit 5")

        assert result.stdout == "ONE\n"
        assert result.returncode == 5

    def test_script_without_interpreter_line(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """A script without a #! line is run by sh, as env and time would run it."""
        (tmp_path / "script").write_text('echo "$0 $1"\n')
        (tmp_path / "script").chmod(0o755)

        assert nncf_tools("monitor", "-q", "--no-plot", "./script", "a b").stdout == "./script a b\n"

    def test_folder_that_was_removed(self, tmp_path: pathlib.Path) -> None:
        """A working folder that is gone keeps nobody from recording."""
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
        """The status is the command's, or what a shell gives when it cannot be run or was killed."""
        (tmp_path / "plain.txt").write_text("not a program")
        result = nncf_tools("monitor", "-q", "--no-plot", *words)

        assert result.returncode == expected

    def test_nothing_is_left_when_nothing_ran(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """A command that cannot be started leaves one line and no file, also when only exec finds out."""
        program = tmp_path / "broken"
        program.write_text("#!/no/such/interpreter\n")
        program.chmod(0o755)
        result = nncf_tools("monitor", "./broken")

        assert result.returncode == 127
        assert len(result.stderr.splitlines()) == 1
        assert [path.name for path in tmp_path.iterdir()] == ["broken"]

    def test_is_kept_in_the_session(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """The session of a failing command is written and knows how it ended."""
        nncf_tools("monitor", "-q", "-o", "run.json", "sh", "-c", "exit 3")
        session = Session.load(tmp_path / "run.json")

        assert session.exit is not None
        assert (session.exit.code, session.exit.signal) == (3, None)

    @pytest.mark.parametrize("stream", ["2>&-", "2>/dev/full", ">&-"])
    def test_survives_a_lost_terminal(self, tmp_path: pathlib.Path, stream: str) -> None:
        """Where our words cannot be printed, the recording and the command's status are what matters."""
        words = " ".join(command_line("monitor", "--no-plot", "-o", "run.json", "sh", "-c", "'exit 7'"))
        status = subprocess.run(["sh", "-c", f"{words} {stream}"], cwd=tmp_path, check=False).returncode

        assert (status, (tmp_path / "run.json").exists()) == (7, True)

    def test_survives_a_broken_plot_library(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """When pictures cannot be drawn, one line says why, and session and status are there."""
        result = nncf_tools("monitor", "-q", "-o", "run.json", "--plot", "sh", "-c", "exit 7", env={"MPLBACKEND": "x"})

        assert (result.returncode, (tmp_path / "run.json").exists()) == (7, True)
        assert result.stderr.startswith(
            "nncf-tools: error: the session is written to run.json, but not all beside it: "
        )
        assert len(result.stderr.splitlines()) == 1


class TestSignals:
    def test_terminate_reaches_the_command_once(self, tmp_path: pathlib.Path) -> None:
        """SIGTERM to the command line is passed on, once, and the session is still written."""
        signals = tmp_path / "signals"
        process = in_background(tmp_path, "monitor", "-q", "-o", "run.json", *burner("signalled", signals))
        wait_for(signals, "ready")
        process.terminate()
        status = process.wait(HANGING_S)

        assert status == 9
        assert signals.read_text() == "ready\nSIGTERM\n"
        assert (tmp_path / "run.json").exists()

    def test_interrupt_of_the_group_reaches_the_command_once(self, tmp_path: pathlib.Path) -> None:
        """Ctrl-C, which the terminal sends to the process group, arrives once, and the session is still written."""
        signals = tmp_path / "signals"
        process = in_background(tmp_path, "monitor", "-q", "-o", "run.json", *burner("signalled", signals))
        wait_for(signals, "ready")
        os.killpg(process.pid, signal.SIGINT)
        status = process.wait(HANGING_S)

        assert status == 9
        assert signals.read_text() == "ready\nSIGINT\n"
        assert (tmp_path / "run.json").exists()

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
        assert "Written to run.json" in terminal.before

    def test_hang_up_of_a_session_leader_reaches_the_command(self, tmp_path: pathlib.Path) -> None:
        """When the terminal goes away, the kernel tells the session's leader, and we the command."""
        signals = tmp_path / "signals"
        words = command_line("monitor", "-q", "-o", "run.json", *burner("signalled", signals))
        terminal = pexpect.spawn(sys.executable, words[1:], cwd=str(tmp_path), timeout=HANGING_S)
        wait_for(signals, "ready")
        os.close(terminal.child_fd)
        wait_for(tmp_path / "run.json", "}")
        terminal.closed = True

        assert signals.read_text() == "ready\nSIGHUP\n"

    def test_ignored_hang_up_stays_ignored(self, tmp_path: pathlib.Path) -> None:
        """Under nohup, the command ignores hang-ups as it would alone."""
        words = command_line("monitor", "-q", "-o", "run.json", "grep", "SigIgn", "/proc/self/status")
        result = subprocess.run(
            ["nohup", *words], cwd=tmp_path, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL
        )
        ignored = int(result.stdout.split()[1], 16) & ~INTERNAL

        assert ignored == 1 << (signal.SIGHUP - 1)

    def test_no_signal_is_ignored_or_blocked_otherwise(self, nncf_tools: Run) -> None:
        """The command starts with the signal dispositions that it would have had alone."""
        result = nncf_tools("monitor", "-q", "--no-plot", "grep", "-E", "SigIgn|SigBlk", "/proc/self/status")

        assert [int(line.split()[1], 16) & ~INTERNAL for line in result.stdout.splitlines()] == [0, 0]


class TestKills:
    def test_killed_sampler(self, tmp_path: pathlib.Path) -> None:
        """Without its sampler, the command goes on, its status is returned and the session made of the journal."""
        process = in_background(
            tmp_path, "monitor", "-o", "run.json", *burner("touch", 20, 2, 6), stderr=subprocess.PIPE
        )
        start = start_of(tmp_path / "run.journal.jsonl")
        os.kill(start["sampler_pid"], signal.SIGKILL)
        _, errors = process.communicate(timeout=HANGING_S)
        session = Session.load(tmp_path / "run.json")

        assert process.returncode == 6
        assert "the sampler was killed" in errors.decode()
        assert not session.finished
        assert session.exit is not None
        assert session.exit.code == 6

    def test_terminate_after_a_killed_sampler(self, tmp_path: pathlib.Path) -> None:
        """A command that goes on without its sampler can still be ended."""
        process = in_background(tmp_path, "monitor", "-q", "-o", "run.json", "sleep", "60")
        start = start_of(tmp_path / "run.journal.jsonl")
        os.kill(start["sampler_pid"], signal.SIGKILL)
        while pathlib.Path(f"/proc/{start['sampler_pid']}").exists():
            time.sleep(0.01)
        process.terminate()

        assert process.wait(HANGING_S) == 128 + signal.SIGTERM

    def test_killed_command_line(self, tmp_path: pathlib.Path) -> None:
        """Without the command line, sampler and command go on to the end, and the journal is complete."""
        journal = tmp_path / "run.journal.jsonl"
        process = in_background(tmp_path, "monitor", "-o", "run.json", *burner("touch", 20, 1, 6))
        start_of(journal)
        process.kill()
        process.wait(HANGING_S)
        wait_for(journal, '"end":')
        session = Session.load(journal)

        assert session.finished
        assert session.exit is not None
        assert session.exit.code == 6
        assert session.duration_s > 1

    def test_journal_of_a_running_recording(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """While a recording runs, its journal is reported as going on."""
        process = in_background(tmp_path, "monitor", "-q", "-o", "run.json", "sleep", "60")
        start_of(tmp_path / "run.journal.jsonl")
        result = nncf_tools("report", "run.journal.jsonl")
        process.terminate()
        process.wait(HANGING_S)

        assert "unfinished: the recording goes on" in result.stdout

    def test_no_process_stays(self, nncf_tools: Run) -> None:
        """When the command has ended, so has the sampler."""
        nncf_tools("monitor", "-q", "--no-plot", "true")
        listing = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout

        assert str(run_folder(nncf_tools)) not in listing


class TestAttach:
    def test_process_is_recorded_until_it_ends(self, nncf_tools: Run) -> None:
        """--pid records a running process, names its command and ends with it."""
        process = subprocess.Popen(burner("touch", 50, 1.5))
        session = recorded(nncf_tools, "--pid", process.pid)
        status = process.wait(HANGING_S)

        assert status == 0
        assert session.attached_to == process.pid
        assert session.command == burner("touch", 50, 1.5)
        assert (session.peaks["rss"].sampled or 0) > 50 * MIB

    def test_counters_begin_with_the_recording(self, nncf_tools: Run) -> None:
        """CPU and I/O from before the recording are not in its totals."""
        script = "import time\nwhile time.process_time() < 1: pass\nprint(flush=True)\ntime.sleep(60)"
        with subprocess.Popen([sys.executable, "-S", "-c", script], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            session = recorded(nncf_tools, "--pid", process.pid, "--duration", 0.3)
            process.kill()

        assert session.totals["cpu_user"] == pytest.approx(0, abs=0.05)
        assert session.totals["read_chars"] == 0

    def test_peak_of_before_is_not_counted(self, nncf_tools: Run) -> None:
        """What a process held before the recording is in neither its peak nor its own mark, only in the upper bound."""
        script = "x = bytearray(100 << 20); x[::4096] = b'x' * len(x[::4096]); del x; print(flush=True); input()"
        words = [sys.executable, "-S", "-c", script]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            session = recorded(nncf_tools, "--pid", process.pid, "--duration", 0.3)
            process.kill()
        peak = session.peaks["rss"]

        assert peak.low == peak.sampled
        assert (peak.low or 0) < 30 * MIB
        assert (peak.high or 0) > 100 * MIB

    def test_our_own_processes_are_left_out(self, tmp_path: pathlib.Path) -> None:
        """Attached to the shell that started it, the recording holds neither command line nor sampler."""
        words = " ".join(command_line("monitor", "-q", "-o", "run.json", "--duration", 0.3))
        for source in ("proc", "psutil"):
            script = f"{words} --force --source {source} --pid $$; true"
            subprocess.run(["sh", "-c", script], cwd=tmp_path, check=True, timeout=HANGING_S)

            assert [process.name for process in Session.load(tmp_path / "run.json").processes] == ["sh"]

    def test_terminate_ends_the_recording_only(self, tmp_path: pathlib.Path) -> None:
        """SIGTERM ends the recording of a process that is not ours and leaves it alone."""
        sleeper = subprocess.Popen(["sleep", "60"])
        process = in_background(tmp_path, "monitor", "-q", "-o", "run.json", "--pid", sleeper.pid)
        start_of(tmp_path / "run.journal.jsonl")
        process.terminate()
        status = process.wait(HANGING_S)
        still_runs = sleeper.poll() is None
        sleeper.kill()
        sleeper.wait()

        assert (status, still_runs) == (0, True)

    def test_duration_ends_the_recording(self, nncf_tools: Run) -> None:
        """--duration ends the recording after that time; a command goes on and its status is returned."""
        session = recorded(nncf_tools, "--duration", 0.5, "--", *burner("touch", 5, 1.5))

        assert session.duration_s == pytest.approx(0.5, abs=0.1)
        assert len(session.samples) <= 6
        assert session.exit is not None


class TestFiles:
    def test_new_folder_for_each_run(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """Session, logs and pictures, absolute and from zero, lie in a new folder that ``latest`` leads to."""
        nncf_tools("monitor", "-q", "--type", "rss", "true")
        nncf_tools("monitor", "-q", "--type", "rss", "true")
        folders = sorted((tmp_path / "memory_logs").iterdir())
        expected = [f"rss_memory_usage{zero}.{kind}" for zero in ("", "_from-zero") for kind in ("png", "txt")]

        assert len(folders) == 3
        assert sorted(path.name for path in (tmp_path / "memory_logs/latest").iterdir()) == sorted(
            [*expected, "session.json"]
        )

    def test_output_alone(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """With --output, only the session is written, gzipped by its name."""
        nncf_tools("monitor", "-q", "-o", "new folder/run.json.gz", "true")

        assert [path.name for path in (tmp_path / "new folder").iterdir()] == ["run.json.gz"]
        assert (tmp_path / "new folder/run.json.gz").read_bytes().startswith(b"\x1f\x8b")

    def test_existing_output_is_kept(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """What exists is not overwritten without --force, and the command is not started."""
        (tmp_path / "run.json").write_text("precious")
        result = nncf_tools("monitor", "-o", "run.json", "touch", "started")

        assert result.returncode == 2
        assert result.stderr.splitlines() == [
            "nncf-tools: error: option --output: 'run.json' exists; choose another name or give --force"
        ]
        assert [path.name for path in tmp_path.iterdir()] == ["run.json"]

    def test_only_a_file_is_replaced(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """A pipe or device is not written over, even with --force."""
        os.mkfifo(tmp_path / "pipe")
        result = nncf_tools("monitor", "--force", "-o", "pipe", "touch", "started")

        assert result.returncode == 2
        assert "option --output: 'pipe' is a device or pipe; a file name expected" in result.stderr
        assert [path.name for path in tmp_path.iterdir()] == ["pipe"]

    def test_a_link_is_followed(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """An output that is a link is written where it leads."""
        (tmp_path / "there").mkdir()
        (tmp_path / "run.json").symlink_to("there/real.json")
        nncf_tools("monitor", "-q", "-o", "run.json", "true")

        assert (tmp_path / "run.json").is_symlink()
        assert Session.load(tmp_path / "there/real.json").finished

    def test_two_recordings_to_one_file(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """A recording that still runs is not written over, even with --force."""
        first = in_background(tmp_path, "monitor", "-q", "-o", "run.json", "sleep", "60")
        start_of(tmp_path / "run.journal.jsonl")
        second = nncf_tools("monitor", "--force", "-o", "run.json", "true")
        first.terminate()
        first.wait(HANGING_S)

        assert second.returncode == 2
        assert "option --output: another recording that still runs writes to 'run.journal.jsonl'" in second.stderr

    @pytest.mark.parametrize("option", ["--output=/proc/locked/run.json", "--log-dir=/proc/locked"])
    def test_unwritable_place(self, nncf_tools: Run, tmp_path: pathlib.Path, option: str) -> None:
        """Where nothing can be written, not even by root, the command is not started."""
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
            (["--interval", "-1", "true"], "option --interval: a number"),
            (["--interval", "nan", "true"], "option --interval: a number"),
            (["--interval", "soon", "true"], "'--interval'"),
            (["--duration", "-1", "true"], "option --duration: a number"),
            (["--type", "gpu", "true"], "option --type: 'gpu' is not one of rss, vms, anon"),
            (["--unit", "stone", "true"], "'--unit'"),
            (["--source", "tea", "true"], "option --source: 'tea' is not one of proc, psutil"),
            (["--pid", "1", "true"], "option --pid: either a command or --pid, not both"),
            (["--shell", "echo", "one"], "option --shell: one quoted string expected"),
            (["echo 'open"], "argument COMMAND:"),
            ([], "argument COMMAND: missing"),
            (["--max-samples", "1", "true"], "'--max-samples'"),
            (["--source", "psutil", "--type", "pss", "true"], "option --type: 'pss' is not available here: not from"),
            (["--tpye", "rss"], "No such option: --tpye"),
            (["-o", ".", "true"], "option --output: '.' is a folder"),
            (["-o", "n" * 300, "true"], "File name too long"),
        ],
    )
    def test_is_one_line_that_names_the_option(
        self, nncf_tools: Run, tmp_path: pathlib.Path, words: list[str], message: str
    ) -> None:
        """A wrong option is one line naming it, status 2, and leaves nothing."""
        result = nncf_tools("monitor", *words)

        assert result.returncode == 2
        assert len(result.stderr.splitlines()) == 1
        assert message in result.stderr
        assert list(tmp_path.iterdir()) == []

    def test_no_such_process(self, nncf_tools: Run) -> None:
        """Attaching to a process that is not there is status 1."""
        result = nncf_tools("monitor", "--pid", 2**22 - 1)

        assert (result.returncode, result.stderr) == (
            1,
            f"nncf-tools: error: option --pid: there is no process {2**22 - 1}\n",
        )
