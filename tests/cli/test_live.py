from __future__ import annotations

import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import termios

import psutil
import pytest

from nncftools import Session
from tests import waiting
from tests.cli.hastened import hastened
from tests.cli.pseudo_terminal import CHART, KEYS, MACHINE, RECORDING, PseudoTerminal
from tests.cli.test_record import in_background
from tests.conftest import HANGING_S, Run, burner
from tests.made_up import mib, session

pytestmark = pytest.mark.process

SIZES = [(80, 24), *(pytest.param(size, marks=pytest.mark.long) for size in [(120, 40), (200, 60)])]
COMMAND_READS = "the command reads the terminal: the live view ends"


def runs_below(terminal: PseudoTerminal, name: str) -> bool:
    """Return whether the command runs: the view may be drawn before."""
    return name in {process.name() for process in psutil.Process(terminal.process.pid).children(recursive=True)}


def live(folder: pathlib.Path, *words: object, options: tuple[object, ...] = (), **more: object) -> PseudoTerminal:
    """Record with a live view in a terminal."""
    given = ("monitor", "--live", "-o", "run.json", *options, "--", *words)
    return PseudoTerminal(folder, *given, **more)  # type: ignore[arg-type]


def live_without_input(folder: pathlib.Path, *words: object, **more: object) -> PseudoTerminal:
    """Record with a live view in a terminal that is not the command's input."""
    command = shlex.join(map(str, words))
    (folder / "run.sh").write_text(
        f"{sys.executable} -m nncftools monitor --live -t rss,system -o run.json -- {command} < /dev/null\n"
    )
    given = ("monitor", "-q", "-o", "outer.json", "sh", "run.sh")
    return PseudoTerminal(folder, *given, **more)  # type: ignore[arg-type]


def ends_when_it_may(terminal: PseudoTerminal, folder: pathlib.Path) -> str:
    """Let a burner end that waits for the file ``go``; return the screen at the end."""
    (folder / "go").touch()
    return terminal.until_end()


def row_of_view(text: str) -> int:
    """Return the row of the screen in which the view starts."""
    return next(row for row, line in enumerate(text.split("\n")) if RECORDING.search(line))


class TestView:
    @pytest.mark.parametrize("size", SIZES)
    def test_fills_the_lower_part_of_any_screen(self, tmp_path: pathlib.Path, size: tuple[int, int]) -> None:
        """Below the command's output are command, memory with its peak, chart, processes and the machine's memory."""
        terminal = live(tmp_path, *burner("touch", 50, "go"), size=size)
        peak = re.compile(r"● RSS [\d.]+ MiB +◆ peak [\d.]+ MiB at")
        processes = re.compile(r"│ Processes 1 by memory ─+ │\n│ +\d+ touch.py 50 go +")
        text = terminal.until("touch.py 50 go ─", RECORDING, peak, CHART, processes, MACHINE)
        ends_when_it_may(terminal, tmp_path)

        assert 0 < row_of_view(text) <= size[1] - 8
        assert " available of " in text
        assert terminal.status == 0

    @pytest.mark.long
    def test_gives_way_to_the_summary(self, tmp_path: pathlib.Path) -> None:
        """When the command has ended, the view is gone and the summary follows the command's output."""
        terminal = live(tmp_path, *burner("prints", 3, "go"), size=(100, 50))
        terminal.until(RECORDING)
        text = ends_when_it_may(terminal, tmp_path)

        assert not RECORDING.search(text)
        assert text.index("line 0 of") < text.index("line 2 of") < text.index("Peak memory") < text.index("run.json · ")

    @pytest.mark.long
    def test_operations_are_named(self, tmp_path: pathlib.Path) -> None:
        """The view names operations that are marked while the command runs."""
        script = f"{sys.executable} -m nncftools mark 'Weight Compression'\n{' '.join(burner('touch', 0, 'go'))}"
        (tmp_path / "script").write_text(script)
        terminal = live(tmp_path, "sh", "script")
        now = re.compile(r"^│ Now Weight Compression, for \d", re.MULTILINE)
        along_the_axis = re.compile(r"^│ Operations .*Weight", re.MULTILINE)
        terminal.until(now, along_the_axis)
        ends_when_it_may(terminal, tmp_path)

        assert terminal.status == 0

    @pytest.mark.long
    def test_resizing(self, tmp_path: pathlib.Path) -> None:
        """After a change of the screen size the view is drawn again, once."""
        terminal = live(tmp_path, *burner("prints", 3, "go"))

        def is_whole(text: str, columns: int, rows: int) -> bool:
            lines = text.split("\n")
            titles = [line for line in lines if RECORDING.search(line)]
            return [len(line) for line in titles] == [columns] and bool(MACHINE.search(lines[rows - 2]))

        terminal.until(CHART)
        terminal.resize(120, 40)
        terminal.until(lambda text: is_whole(text, 120, 40))
        terminal.resize(80, 24)
        terminal.until(lambda text: is_whole(text, 80, 24))
        ends_when_it_may(terminal, tmp_path)

        assert terminal.status == 0

    @pytest.mark.long
    def test_narrow_for_a_while(self, tmp_path: pathlib.Path) -> None:
        """After 120 columns, 40 and again 120 there is one view, and the command's output is whole."""
        terminal = live(tmp_path, *burner("prints", 3, "go"), size=(120, 40))

        def is_alone(text: str, columns: int) -> bool:
            titles = [line for line in text.split("\n") if RECORDING.search(line)]
            return (
                [len(line) for line in titles] == [columns] and text.count("RSS") == 1 and text.count(" 0 MiB ┤") == 1
            )

        before = terminal.until("line 2 of the command", lambda text: is_alone(text, 120), CHART)
        terminal.resize(40, 40)
        terminal.until(lambda text: is_alone(text, 40), re.compile(r"^Machine  [\d.]+ GiB", re.MULTILINE))
        terminal.resize(120, 40)
        after = terminal.until("line 2 of the command", lambda text: is_alone(text, 120), CHART, MACHINE)
        ends_when_it_may(terminal, tmp_path)

        assert [after.count(f"line {number} of the command") for number in range(3)] == [1, 1, 1]
        assert row_of_view(after) == row_of_view(before)
        assert "?25l" not in terminal.written.decode()
        assert "?1049h" not in terminal.written.decode()

    @pytest.mark.long
    def test_no_colour(self, tmp_path: pathlib.Path) -> None:
        """With NO_COLOR, there are no colours."""
        terminal = live(tmp_path, *burner("touch", 10, "go"), NO_COLOR="1")
        terminal.until(CHART)
        ends_when_it_may(terminal, tmp_path)

        assert b"\x1b[3" not in terminal.written.replace(b"\x1b[3;", b"")

    @pytest.mark.long
    def test_ascii_where_nothing_else_can_be_shown(self, tmp_path: pathlib.Path) -> None:
        """The view uses only characters that the encoding has."""
        terminal = live(tmp_path, *burner("touch", 10, "go"), PYTHONIOENCODING="ascii")
        terminal.until(RECORDING, re.compile(r" 0 MiB \+[*+:]"), MACHINE)
        view = terminal.written
        ends_when_it_may(terminal, tmp_path)

        assert view.isascii()

    def test_lines_where_nothing_can_be_drawn(self, tmp_path: pathlib.Path) -> None:
        """Without a terminal, plain lines show the progress; standard output has only the command's output."""
        words = ("monitor", "--live", "-o", "run.json", *burner("prints", 2, "go"))
        with subprocess.Popen(
            hastened({"live.viewer.STATUS_S": 0.1}, *words),
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stderr is not None
            before = ""
            for line in process.stderr:  # the first may come before the first sample
                before += line
                if "peak" in line:
                    break
            (tmp_path / "go").touch()
            output, rest = process.communicate(timeout=HANGING_S)

        assert output == "line 0 of the command\nline 1 of the command\n"
        assert re.match(r"nncf-tools: 0:\d\d; RSS [\d.]+ MiB, peak [\d.]+ MiB at 0:\d\d; ", line)
        assert "\x1b" not in before + rest

    @pytest.mark.long
    def test_whole_lines_on_a_dumb_terminal(self, tmp_path: pathlib.Path) -> None:
        """A terminal without a cursor gets lines; nothing is drawn over."""
        periods = {"live.viewer.STATUS_S": 0.1}
        words = ("monitor", "--live", "-o", "run.json", *burner("touch", 10, "go"))
        terminal = PseudoTerminal(tmp_path, *words, periods=periods, TERM="dumb")
        terminal.until(re.compile(r"^nncf-tools: 0:\d\d; RSS [\d.]+ MiB, peak [\d.]+ MiB at 0:\d\d; ", re.MULTILINE))
        ends_when_it_may(terminal, tmp_path)

        assert b"\x1b" not in terminal.written
        assert terminal.status == 0

    @pytest.mark.long
    def test_samples_are_the_same(self, tmp_path: pathlib.Path) -> None:
        """A sampler with a view keeps its deadlines as well as one without that runs at the same time.

        Chance makes either one better; a sampler that its view delays would always be worse.
        """

        def share(name: str) -> float:
            facts = Session.load(tmp_path / name).sampler
            return (facts.taken or 0) / ((facts.taken or 0) + (facts.missed or 0))

        shares = []
        for attempt in range(10):
            words = ("-i", 0.01, "--force")
            command = burner("touch", 10, f"go-{attempt}")
            plain = in_background(tmp_path, "monitor", "-q", *words, "-o", "plain.json", *command)
            terminal = live(tmp_path, *command, options=words)
            terminal.until(CHART, re.compile(r"● recording  (?!0:0[01] )\d+:\d\d ─╮$", re.MULTILINE))
            (tmp_path / f"go-{attempt}").touch()
            terminal.until_end()
            plain.wait(HANGING_S)
            shares.append((share("run.json"), share("plain.json")))
            if shares[-1][0] > shares[-1][1] - 0.05:
                return
        pytest.fail("; ".join(f"{drawn:.1%} with the view, {plain:.1%} without" for drawn, plain in shares))


class TestOutput:
    @pytest.mark.long
    def test_much_output_scrolls_above(self, tmp_path: pathlib.Path) -> None:
        """All lines of a verbose command arrive in order, the last ones directly above the view."""
        terminal = live(tmp_path, *burner("prints", 3000, "go"))
        text = terminal.until("line 2999 of", RECORDING)
        last = next(row for row, line in enumerate(text.split("\n")) if "line 2999 of" in line)
        ends_when_it_may(terminal, tmp_path)
        above, _, below = terminal.scrollback.partition("line 2999 of the command\n")

        assert 0 < row_of_view(text) - last <= 2
        assert re.findall(r"^line (\d+) of the command$", above, re.MULTILINE) == [str(n) for n in range(2999)]
        assert not re.search(r"^line \d", below, re.MULTILINE)
        assert not RECORDING.search(terminal.scrollback)

    @pytest.mark.long
    def test_progress_bar(self, tmp_path: pathlib.Path) -> None:
        """A progress bar is one line above the view; its last state stays, and later output follows it."""
        terminal = live(tmp_path, *burner("bar", 20, "go", "end"))
        text = terminal.until(" 50%|##########          | 10/20", RECORDING)
        (tmp_path / "go").touch()
        after = terminal.until("after the bar", RECORDING)
        (tmp_path / "end").touch()
        terminal.until_end()

        assert text.count("%|") == 1
        assert after.count("%|") == 1
        assert "100%|####################| 20/20" in after
        assert after.index("before the bar") < after.index("100%|") < after.index("after the bar")

    @pytest.mark.long
    def test_captured_output(self, tmp_path: pathlib.Path) -> None:
        """With --capture the output goes to the file, and the view has the whole screen."""
        terminal = live(tmp_path, *burner("prints", 3, "go"), options=("--capture", "out.txt"))
        text = terminal.until(RECORDING, CHART, MACHINE)
        ends_when_it_may(terminal, tmp_path)

        assert row_of_view(text) <= 1
        assert b"line 0 of" not in terminal.written
        assert (tmp_path / "out.txt").read_text().splitlines() == [f"line {n} of the command" for n in range(3)]

    def test_capture_needs_a_command(self, in_process: Run) -> None:
        """The output of a process that already runs cannot be had."""
        result = in_process("monitor", "--capture", "out.txt", "--pid", 1)

        assert result.returncode == 2
        assert "--capture" in result.stderr

    @pytest.mark.long
    def test_redirected_output_stays_the_commands(self, tmp_path: pathlib.Path) -> None:
        """Standard output that goes to a file goes there untouched."""
        inner = " ".join(["nncftools", "monitor", "--live", "-o", "run.json", *burner("prints", 3, "go")])
        (tmp_path / "run.sh").write_text(f"{sys.executable} -m {inner} > out.txt\n")
        terminal = PseudoTerminal(tmp_path, "monitor", "-q", "-o", "outer.json", "sh", "run.sh")
        terminal.until(RECORDING)
        ends_when_it_may(terminal, tmp_path)

        assert (tmp_path / "out.txt").read_text().splitlines() == [f"line {n} of the command" for n in range(3)]


class TestAside:
    def test_password(self, tmp_path: pathlib.Path) -> None:
        """When the command asks for a password, the view is hidden, the prompt is visible, and the answer arrives."""
        terminal = live(tmp_path, *burner("asks", "password", "go"))
        terminal.until(RECORDING)
        (tmp_path / "go").touch()
        text = terminal.until(COMMAND_READS, "Password:")
        terminal.send("secret\r")
        after = terminal.until("6 characters")
        terminal.until_end()

        assert not RECORDING.search(text)
        assert "secret" not in after
        assert terminal.status == 0

    @pytest.mark.long
    def test_question(self, tmp_path: pathlib.Path) -> None:
        """The same for an input prompt; the answer is echoed where it is typed."""
        terminal = live(tmp_path, *burner("asks", "name", "go"))
        terminal.until(RECORDING)
        (tmp_path / "go").touch()
        terminal.until(COMMAND_READS, "Name:")
        terminal.send("Ada\r")
        text = terminal.until("3 characters")
        terminal.until_end()

        assert "Name: Ada" in text
        assert not RECORDING.search(text)

    @pytest.mark.long
    def test_full_screen_programs(self, tmp_path: pathlib.Path) -> None:
        """A full-screen program gets the whole screen."""
        terminal = live(tmp_path, *burner("takes", "go", "end"))
        terminal.until(RECORDING, CHART)
        (tmp_path / "go").touch()
        text = terminal.until("I have the screen")
        (tmp_path / "end").touch()
        terminal.until_end()

        assert "┤" not in text
        assert not RECORDING.search(text)
        assert b"the command takes the screen: the live view ends" in terminal.written


class TestKeys:
    """Programs that read keys from the terminal of their output, which is the relay's."""

    @pytest.mark.parametrize(
        "words",
        [
            ("monitor", "--live", "--", "less", "long.txt"),
            pytest.param(("monitor", "--live", "--", "sh", "-c", "cat long.txt | less -X"), marks=pytest.mark.long),
            pytest.param(
                ("profile", "--no-stacks", "--no-plot", "--mark-on", "x", "--", "sh", "-c", "cat long.txt | less"),
                marks=pytest.mark.long,
            ),
        ],
        ids=["file", "pipe", "mark-on"],
    )
    def test_less(self, tmp_path: pathlib.Path, words: tuple[str, ...]) -> None:
        """Each key reaches a pager at once and without echo; the terminal is restored after it."""
        (tmp_path / "long.txt").write_text("".join(f"row {number} of 300\n" for number in range(300)))
        command, *rest = words
        terminal = PseudoTerminal(tmp_path, command, "-o", "run.json", *rest)
        terminal.until(re.compile(r"^row 1\d of 300", re.MULTILINE), lambda text: not RECORDING.search(text))
        terminal.send("G")
        last = terminal.until("row 299 of 300")
        terminal.send("q")
        terminal.until_end()

        assert "G" not in last.replace("--END", "")
        assert terminal.is_restored()
        assert terminal.status == 0

    @pytest.mark.long
    def test_kill(self, tmp_path: pathlib.Path) -> None:
        """After SIGKILL the terminal edits and echoes lines as before, though a pager was reading keys."""
        (tmp_path / "long.txt").write_text("row\n" * 300)
        words = ("monitor", "--live", "-o", "run.json", "--", "less", "long.txt")
        terminal = PseudoTerminal(tmp_path, *words, in_shell=True)
        terminal.until("row", lambda _: termios.tcgetattr(terminal.process.child_fd) != terminal.modes)
        psutil.Process(terminal.child).kill()
        terminal.until(lambda _: termios.tcgetattr(terminal.process.child_fd) == terminal.modes)
        terminal.kill()


class TestOwnKeys:
    """Keys of the view, where the terminal is not the command's input."""

    def test_keys(self, tmp_path: pathlib.Path) -> None:
        """Keys change the view and are not seen; q leaves the terminal to the command, which goes on."""
        terminal = live_without_input(tmp_path, *burner("prints", 3, "go"))
        terminal.until(RECORDING, CHART, KEYS)
        terminal.send("?")
        terminal.until("other metrics")
        terminal.send("?m")
        terminal.until("● System", lambda text: "other metrics" not in text)
        terminal.send(" ")
        paused = terminal.until(re.compile(r"[●*] paused "))
        terminal.send("q")
        text = terminal.until("q was pressed: the live view ends", lambda text: "paused" not in text)
        ends_when_it_may(terminal, tmp_path)

        assert [line for line in paused.split("\n") if line.startswith("line")] == [
            f"line {number} of the command" for number in range(3)
        ]
        assert "line 2 of the command" in text
        assert terminal.is_restored()
        assert terminal.status == 0

    def test_password(self, tmp_path: pathlib.Path) -> None:
        """A command that asks for a password on the terminal gets it, and nobody sees it."""
        terminal = live_without_input(tmp_path, *burner("asks", "password", "go"))
        terminal.until(RECORDING, KEYS)
        (tmp_path / "go").touch()
        terminal.until(COMMAND_READS, "Password:")
        terminal.send("secret\r")
        text = terminal.until("6 characters")
        terminal.until_end()

        assert "secret" not in text
        assert terminal.is_restored()
        assert terminal.status == 0

    @pytest.mark.long
    def test_kill(self, tmp_path: pathlib.Path) -> None:
        """After SIGKILL the terminal edits lines as before."""
        terminal = live_without_input(tmp_path, *burner("touch", 5, "go"))
        terminal.until(RECORDING, KEYS, lambda _: termios.tcgetattr(terminal.process.child_fd) != terminal.modes)
        (inner,) = (
            process
            for process in psutil.Process(terminal.process.pid).children(recursive=True)
            if "--live" in process.cmdline() and process.parent().name() == "sh"
        )
        inner.kill()
        terminal.until(lambda _: termios.tcgetattr(terminal.process.child_fd) == terminal.modes)
        (tmp_path / "go").touch()
        terminal.until_end()

        assert terminal.is_restored()


class TestWithoutPlotext:
    """Where plotext cannot be loaded: no wheel has its compiled part."""

    @pytest.fixture
    def broken(self, tmp_path: pathlib.Path) -> str:
        """Return a PYTHONPATH with which plotext cannot be loaded."""
        (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['plotext'] = None\n")
        return f"{tmp_path}:{pathlib.Path.cwd()}"

    def test_live(self, tmp_path: pathlib.Path, broken: str) -> None:
        """It is said why there is no chart, whole also at 80 columns; status lines are shown instead."""
        periods = {"live.viewer.STATUS_S": 0.1}
        words = ("monitor", "--live", "-o", "run.json", "--", *burner("prints", 2, "go"))
        terminal = PseudoTerminal(tmp_path, *words, size=(80, 24), periods=periods, PYTHONPATH=broken)
        status = re.compile(r"^nncf-tools: 0:\d\d; RSS [\d.]+ MiB, peak ", re.MULTILINE)
        text = terminal.until("no chart: plotext cannot be loaded (import of plotext halted", status)
        ends_when_it_may(terminal, tmp_path)

        assert text.count("no chart") == 1
        assert b"the live view ends" in terminal.written
        assert terminal.status == 0

    @pytest.mark.long
    def test_replay_and_report(self, tmp_path: pathlib.Path, broken: str) -> None:
        """The same for a replay; the chart of a report has its other rows."""
        saved = session({"time_s": [0.0, 1.0, 2.0], "rss": mib(100, 300, 200)})
        saved.save(tmp_path / "run.json")
        replayed = PseudoTerminal(tmp_path, "replay", "run.json", size=(140, 24), PYTHONPATH=broken)
        text = replayed.until_end()
        reported = PseudoTerminal(tmp_path, "report", "run.json", "--format", "terminal", PYTHONPATH=broken)
        chart = reported.until_end()

        assert "no chart: plotext cannot be loaded" in text
        assert "RSS 200.0 MiB, peak 300.0 MiB at 0:01; " in text
        assert "no chart: plotext cannot be loaded" in chart
        assert "RSS 200.0 MiB  ◆ peak 300.0 MiB" in chart
        assert (replayed.status, reported.status) == (0, 0)


class TestEndings:
    def test_interrupt(self, tmp_path: pathlib.Path) -> None:
        """Ctrl-C ends the command; the terminal is restored, and the summary says how the command ended."""
        terminal = live(tmp_path, "sleep", 60)
        terminal.until(RECORDING, lambda _: runs_below(terminal, "sleep"))
        terminal.process.sendintr()
        text = terminal.until_end()

        assert terminal.is_restored()
        assert not RECORDING.search(text)
        assert b"killed by SIGINT" in terminal.written
        assert terminal.status == 128 + signal.SIGINT

    @pytest.mark.long
    def test_two_interrupts(self, tmp_path: pathlib.Path) -> None:
        """A second Ctrl-C reaches a command that survived the first."""
        script = "trap 'trap - INT; : > trapped' INT; : > ready; while :; do sleep 0.2; done"
        terminal = live(tmp_path, "sh", "-c", script)
        terminal.until(RECORDING, lambda _: (tmp_path / "ready").exists())
        terminal.process.sendintr()
        terminal.until(RECORDING, lambda _: (tmp_path / "trapped").exists())
        terminal.process.sendintr()
        terminal.until_end()

        assert terminal.is_restored()
        assert terminal.status == 128 + signal.SIGINT

    @pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.long)])
    def test_signals(self, tmp_path: pathlib.Path, number: int) -> None:
        """The terminal is restored, however the command is ended through us."""
        terminal = live(tmp_path, "sleep", 60)
        terminal.until(RECORDING, lambda _: runs_below(terminal, "sleep"))
        terminal.process.kill(number)
        terminal.until_end()

        assert terminal.is_restored()
        assert terminal.status == 128 + number

    @pytest.mark.long
    def test_kill(self, tmp_path: pathlib.Path) -> None:
        """After SIGKILL modes, screen and cursor are unchanged, and the recording continues."""
        journal = tmp_path / "run.journal.jsonl"
        terminal = live(tmp_path, *burner("touch", 5, "go"), in_shell=True)
        terminal.until(CHART)
        killed = psutil.Process(terminal.child)
        killed.kill()
        waiting.until(lambda: not killed.is_running(), "the end of the command line")
        known = journal.stat().st_size
        waiting.until(lambda: journal.stat().st_size > known, "another sample")
        (tmp_path / "go").touch()
        waiting.until(lambda: b'"end":' in journal.read_bytes(), "the end of the recording")
        terminal.read()
        restored = terminal.is_restored()
        terminal.kill()

        assert restored
        assert Session.load(journal).finished

    @pytest.mark.long
    def test_failing_view(self, tmp_path: pathlib.Path) -> None:
        """A failing view is dropped; the recording is unaffected."""
        broken = "import sys\nsys.modules['nncftools.live.layout'] = None\n"
        (tmp_path / "sitecustomize.py").write_text(broken)
        terminal = live(tmp_path, *burner("prints", 2, "go"), PYTHONPATH=f"{tmp_path}:{pathlib.Path.cwd()}")
        terminal.until("it could not be drawn: the live view ends", "line 1 of the command")
        ends_when_it_may(terminal, tmp_path)

        assert terminal.status == 0

    @pytest.mark.long
    def test_stopped_and_continued(self, tmp_path: pathlib.Path) -> None:
        """Ctrl-Z removes the view; it is back when the job continues."""
        terminal = live(tmp_path, *burner("touch", 5, "go"))
        command_line = psutil.Process(terminal.process.pid)
        terminal.until(CHART)
        os.kill(command_line.pid, signal.SIGTSTP)
        terminal.until(lambda text: command_line.status() == psutil.STATUS_STOPPED and not RECORDING.search(text))
        os.kill(command_line.pid, signal.SIGCONT)
        terminal.until(RECORDING)
        ends_when_it_may(terminal, tmp_path)

        assert terminal.is_restored()
