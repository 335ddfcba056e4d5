from __future__ import annotations

import os
import re
import shlex
import signal
import sys
from pathlib import Path

import psutil
import pytest

from tests.cli.pseudo_terminal import CHART, KEYS, MACHINE, RECORDING, PseudoTerminal
from tests.conftest import burner

pytestmark = pytest.mark.process

SIZES = [(80, 24), *(pytest.param(size, marks=pytest.mark.long) for size in [(120, 40), (200, 60)])]
COMMAND_READS = "the command reads the terminal: the live view ends"


def runs_below(terminal: PseudoTerminal, name: str) -> bool:
    """Return whether the command runs: the view may be drawn before."""
    return name in {process.name() for process in psutil.Process(terminal.process.pid).children(recursive=True)}


def live(folder: Path, *words: object, options: tuple[object, ...] = (), **more: object) -> PseudoTerminal:
    """Record with a live view in a terminal."""
    given = ("monitor", "--live", "-o", "run.json", *options, "--", *words)
    return PseudoTerminal(folder, *given, **more)  # type: ignore[arg-type]


def live_without_input(folder: Path, *words: object, **more: object) -> PseudoTerminal:
    """Record with a live view in a terminal that is not the command's input."""
    command = shlex.join(map(str, words))
    (folder / "run.sh").write_text(
        f"{sys.executable} -m nncftools monitor --live -t rss,system -o run.json -- {command} < /dev/null\n"
    )
    given = ("monitor", "-q", "-o", "outer.json", "sh", "run.sh")
    return PseudoTerminal(folder, *given, **more)  # type: ignore[arg-type]


def ends_when_it_may(terminal: PseudoTerminal, folder: Path) -> str:
    """Let a burner end that waits for the file ``go``; return the screen at the end."""
    (folder / "go").touch()
    return terminal.until_end()


def row_of_view(text: str) -> int:
    """Return the row of the screen in which the view starts."""
    return next(row for row, line in enumerate(text.split("\n")) if RECORDING.search(line))


class TestView:
    @pytest.mark.parametrize("size", SIZES)
    def test_fills_the_lower_part_of_any_screen(self, tmp_path: Path, size: tuple[int, int]) -> None:
        """Below the command's output are command, memory with its peak, chart, processes and the machine's memory."""
        terminal = live(tmp_path, *burner("touch", 50, "go"), size=size)
        peak = re.compile(r"● RSS [\d.]+ MiB +◆ peak [\d.]+ MiB at")
        processes = re.compile(r"│ Processes 1 by memory ─+ │\n│ +\d+ touch.py 50 go +")
        text = terminal.until("touch.py 50 go ─", RECORDING, peak, CHART, processes, MACHINE)
        ends_when_it_may(terminal, tmp_path)

        assert 0 < row_of_view(text) <= size[1] - 8
        assert " available of " in text
        assert terminal.status == 0


class TestOutput:
    @pytest.mark.long
    def test_much_output_scrolls_above(self, tmp_path: Path) -> None:
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


class TestAside:
    def test_password(self, tmp_path: Path) -> None:
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


class TestKeys:
    """Programs that read keys from the terminal of their output, which is the relay's."""

    @pytest.mark.parametrize(
        "words",
        [
            "monitor --live -o run.json less long.txt",
            pytest.param("monitor --live -o run.json --shell 'cat long.txt | less -X'", marks=pytest.mark.long),
            pytest.param("profile --mark-on x -o run.json less long.txt", marks=pytest.mark.long),
        ],
        ids=["file", "pipe", "mark-on"],
    )
    def test_less(self, tmp_path: Path, words: str) -> None:
        """Each key reaches a pager at once and without echo; the terminal is restored after it."""
        (tmp_path / "long.txt").write_text("".join(f"row {number} of 300\n" for number in range(300)))
        terminal = PseudoTerminal(tmp_path, *shlex.split(words))
        terminal.until(re.compile(r"^row 1\d of 300", re.MULTILINE), lambda text: not RECORDING.search(text))
        terminal.send("G")
        last = terminal.until("row 299 of 300")
        terminal.send("q")
        terminal.until_end()

        assert "G" not in last.replace("--END", "")
        assert terminal.is_restored()
        assert terminal.status == 0


class TestOwnKeys:
    """Keys of the view, where the terminal is not the command's input."""

    def test_keys(self, tmp_path: Path) -> None:
        """Keys change the view and are not seen; q leaves the terminal to the command, which goes on."""
        terminal = live_without_input(tmp_path, *burner("prints", 3, "go"))
        terminal.until(RECORDING, CHART, KEYS)
        terminal.send("m ")
        paused = terminal.until("● System", re.compile(r"[●*] paused "))
        terminal.send("q")
        text = terminal.until("q was pressed: the live view ends", lambda text: "paused" not in text)
        ends_when_it_may(terminal, tmp_path)

        assert [line for line in paused.split("\n") if line.startswith("line")] == [
            f"line {number} of the command" for number in range(3)
        ]
        assert "line 2 of the command" in text
        assert terminal.is_restored()
        assert terminal.status == 0


class TestWithoutPlotext:
    """Where plotext cannot be loaded: no wheel has its compiled part."""

    @pytest.fixture
    def broken(self, tmp_path: Path) -> str:
        """Return a PYTHONPATH with which plotext cannot be loaded."""
        (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['plotext'] = None\n")
        return f"{tmp_path}:{Path.cwd()}"

    def test_live(self, tmp_path: Path, broken: str) -> None:
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


class TestEndings:
    @pytest.mark.parametrize(
        "number", [signal.SIGINT, signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.long)]
    )
    def test_signals(self, tmp_path: Path, number: int) -> None:
        """The terminal is restored, however the command is ended through us; after Ctrl-C, the summary says so."""
        terminal = live(tmp_path, "sleep", 60)
        terminal.until(RECORDING, lambda _: runs_below(terminal, "sleep"))
        if number == signal.SIGINT:
            terminal.process.sendintr()
        else:
            terminal.process.kill(number)
        text = terminal.until_end()

        assert terminal.is_restored()
        assert not RECORDING.search(text)
        assert (b"killed by SIGINT" in terminal.written) == (number == signal.SIGINT)
        assert terminal.status == 128 + number

    @pytest.mark.long
    def test_failing_view(self, tmp_path: Path) -> None:
        """A failing view is dropped; the recording is unaffected."""
        broken = "import sys\nsys.modules['nncftools.live.layout'] = None\n"
        (tmp_path / "sitecustomize.py").write_text(broken)
        terminal = live(tmp_path, *burner("prints", 2, "go"), PYTHONPATH=f"{tmp_path}:{Path.cwd()}")
        terminal.until("drawing failed: the live view ends", "line 1 of the command")
        ends_when_it_may(terminal, tmp_path)

        assert terminal.status == 0

    @pytest.mark.long
    def test_stopped_and_continued(self, tmp_path: Path) -> None:
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
