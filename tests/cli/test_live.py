from __future__ import annotations

import os
import pathlib
import re
import signal
import sys
import time

import pytest

from nncftools import Session
from tests.cli.pseudo_terminal import PseudoTerminal
from tests.conftest import HANGING_S, Run, burner

SIZES = [(80, 24), (120, 40), (200, 60)]


def live(folder: pathlib.Path, *words: object, options: tuple[object, ...] = (), **more: object) -> PseudoTerminal:
    """Record with a live view in a terminal."""
    given = ("monitor", "--live", "-o", "run.json", *options, "--", *words)
    return PseudoTerminal(folder, *given, **more)  # type: ignore[arg-type]


class TestView:
    @pytest.mark.parametrize("size", SIZES)
    def test_fills_the_lower_part_of_any_screen(self, tmp_path: pathlib.Path, size: tuple[int, int]) -> None:
        """Command, memory with its peak, chart, processes and the machine's memory stand below the command's output."""
        terminal = live(tmp_path, *burner("touch", 50, 6), size=size)
        text = terminal.until(lambda text: "peak" in text and "┤" in text and "Machine" in text)
        first = next(row for row, line in enumerate(terminal.lines) if "recording" in line)
        terminal.until_end()

        assert 0 < first <= size[1] - 8
        assert "touch.py" in text
        assert "available of" in text
        assert ("Largest" in text) or ("PID" in text)
        assert terminal.status == 0

    def test_gives_way_to_the_summary(self, tmp_path: pathlib.Path) -> None:
        """When the command has ended, the view is gone and the summary stands below the command's words."""
        terminal = live(tmp_path, *burner("prints", 3, 5), size=(100, 50))
        terminal.until("recording")
        text = terminal.until_end()

        assert "recording" not in text
        assert text.index("line 0 of") < text.index("line 2 of") < text.index("Memory, MiB") < text.index("Written to")

    def test_operations_are_named(self, tmp_path: pathlib.Path) -> None:
        """What is marked while the command runs is named in the view."""
        script = 'nncf-tools mark "Weight Compression"; sleep 4'
        program = f'alias nncf-tools="{sys.executable} -m nncftools"\n{script}'
        (tmp_path / "script").write_text(program)
        terminal = live(tmp_path, "sh", tmp_path / "script")
        text = terminal.until("Now Weight Compression")
        terminal.until(lambda text: "Phases" in text)
        terminal.until_end()

        assert "for" in text

    def test_resizing(self, tmp_path: pathlib.Path) -> None:
        """On a screen that became larger or smaller the view is drawn anew, once."""
        terminal = live(tmp_path, *burner("prints", 3, 8))
        terminal.until("┤")
        terminal.resize(120, 40)
        wide = terminal.until(lambda text: any(len(line) > 110 for line in text.split("\n")))
        terminal.resize(80, 24)
        narrow = terminal.until(lambda text: text.split("\n")[23].startswith("Machine") and "recording" in text)
        terminal.until_end()

        assert wide.count("recording") == 1
        assert narrow.count("recording") == 1

    def test_no_colour(self, tmp_path: pathlib.Path) -> None:
        """With NO_COLOR, nothing is coloured."""
        terminal = live(tmp_path, *burner("touch", 10, 5), NO_COLOR="1")
        terminal.until("┤")
        terminal.until_end()

        assert b"\x1b[3" not in terminal.written.replace(b"\x1b[3;", b"")

    def test_ascii_where_nothing_else_can_be_shown(self, tmp_path: pathlib.Path) -> None:
        """Where the encoding has no other characters, the view has none, either."""
        terminal = live(tmp_path, *burner("touch", 10, 5), PYTHONIOENCODING="ascii")
        terminal.until("+-")
        view = terminal.written
        terminal.until_end()

        assert view.isascii()

    def test_lines_where_nothing_can_be_drawn(self, nncf_tools: Run) -> None:
        """Without a terminal, plain lines tell how it goes; standard output holds the command's words alone."""
        result = nncf_tools("monitor", "--live", "-o", "run.json", *burner("prints", 2, 6))
        lines = [line for line in result.stderr.splitlines() if line.startswith("nncf-tools: 0:0")]

        assert result.stdout == "line 0 of the command\nline 1 of the command\n"
        assert len(lines) == 1
        assert "peak" in lines[0]
        assert "\x1b" not in result.stderr

    def test_samples_are_the_same(self, tmp_path: pathlib.Path, nncf_tools: Run) -> None:
        """With a view the sampler keeps its deadlines as well as without; a busy machine gets three attempts."""

        def share(name: str) -> float:
            facts = Session.load(tmp_path / name).sampler
            return (facts.taken or 0) / ((facts.taken or 0) + (facts.missed or 0))

        for _ in range(3):
            live(tmp_path, *burner("touch", 10, 3), options=("-i", 0.01, "--force")).until_end()
            nncf_tools("monitor", "-q", "-i", 0.01, "--force", "-o", "plain.json", *burner("touch", 10, 3))
            if share("run.json") > share("plain.json") - 0.05:
                return
        pytest.fail(f"{share('run.json'):.1%} with the view, {share('plain.json'):.1%} without")


class TestOutput:
    def test_much_output_scrolls_above(self, tmp_path: pathlib.Path) -> None:
        """All lines of a command that prints a lot arrive in order, the last ones right above the view."""
        terminal = live(tmp_path, *burner("prints", 3000, 5))
        text = terminal.until(lambda text: "line 2999 of" in text and "recording" in text)
        lines = text.split("\n")
        last = next(row for row, line in enumerate(lines) if "line 2999" in line)
        first = next(row for row, line in enumerate(lines) if "recording" in line)
        terminal.until_end()
        numbers = [int(number) for number in re.findall(rb"line (\d+) of", terminal.written)]

        assert 0 < first - last <= 2
        assert numbers == list(range(3000))

    def test_progress_bar(self, tmp_path: pathlib.Path) -> None:
        """A bar is one line above the view, its last state stays, and what follows comes after it."""
        terminal = live(tmp_path, *burner("bar", 20, 5))
        text = terminal.until(lambda text: "%|" in text and "recording" in text)
        after = terminal.until("after the bar")
        terminal.until_end()

        assert text.count("%|") == 1
        assert after.count("%|") == 1
        assert "100%|####################| 20/20" in after
        assert after.index("before the bar") < after.index("100%|") < after.index("after the bar")

    def test_captured_output(self, tmp_path: pathlib.Path) -> None:
        """With --capture the output is in the file and not on the screen, which the view has for itself."""
        terminal = live(tmp_path, *burner("prints", 3, 5), options=("--capture", "out.txt"))
        text = terminal.until("┤")
        first = next(row for row, line in enumerate(text.split("\n")) if "recording" in line)
        terminal.until_end()

        assert first <= 1
        assert b"line 0 of" not in terminal.written
        assert (tmp_path / "out.txt").read_text().splitlines() == [f"line {n} of the command" for n in range(3)]

    def test_capture_needs_a_view(self, nncf_tools: Run) -> None:
        """Without --live, --capture is refused before anything is started."""
        result = nncf_tools("monitor", "--capture", "out.txt", "true")

        assert result.returncode == 2
        assert "--capture" in result.stderr

    def test_redirected_output_stays_the_commands(self, tmp_path: pathlib.Path) -> None:
        """Standard output that goes to a file goes there untouched."""
        inner = " ".join(["nncftools", "monitor", "--live", "-o", "run.json", *burner("prints", 3, 5)])
        (tmp_path / "run.sh").write_text(f"{sys.executable} -m {inner} > out.txt\n")
        terminal = PseudoTerminal(tmp_path, "monitor", "-q", "-o", "outer.json", "sh", "run.sh")
        terminal.until("recording")
        terminal.until_end()

        assert (tmp_path / "out.txt").read_text().splitlines() == [f"line {n} of the command" for n in range(3)]


class TestAside:
    def test_password(self, tmp_path: pathlib.Path) -> None:
        """When the command asks for a password, the view is gone, the question stands, and the answer arrives."""
        terminal = live(tmp_path, *burner("asks", "password"))
        terminal.until("recording")
        text = terminal.until("steps aside")
        terminal.send("secret\r")
        after = terminal.until("6 characters")
        terminal.until_end()

        assert "recording" not in text
        assert "Password:" in text
        assert "secret" not in after
        assert terminal.status == 0

    def test_question(self, tmp_path: pathlib.Path) -> None:
        """The same for a line that is asked for, which is echoed where it is typed."""
        terminal = live(tmp_path, *burner("asks", "name"))
        terminal.until("steps aside")
        terminal.send("Ada\r")
        text = terminal.until("3 characters")
        terminal.until_end()

        assert "Name: Ada" in text
        assert "recording" not in text

    def test_full_screen_programs(self, tmp_path: pathlib.Path) -> None:
        """A program that takes the whole screen has it."""
        script = r"sleep 2; printf '\033[?1049h\033[2;5HI have the screen'; sleep 2; printf '\033[?1049l'"
        terminal = live(tmp_path, "sh", "-c", script)
        text = terminal.until("I have the screen")
        terminal.until_end()

        assert "┤" not in text
        assert b"steps aside" in terminal.written


class TestEndings:
    def test_interrupt(self, tmp_path: pathlib.Path) -> None:
        """Ctrl-C ends the command; the terminal is as it was, and the summary says how it ended."""
        terminal = live(tmp_path, "sleep", 60)
        terminal.until("recording")
        terminal.process.sendintr()
        text = terminal.until_end()

        assert terminal.is_restored()
        assert "recording" not in text
        assert b"killed by SIGINT" in terminal.written
        assert terminal.status == 128 + signal.SIGINT

    def test_two_interrupts(self, tmp_path: pathlib.Path) -> None:
        """Ctrl-C reaches a command that goes on after the first one a second time."""
        script = "trap 'trap - INT; echo once' INT; while :; do sleep 0.2; done"
        terminal = live(tmp_path, "sh", "-c", script)
        terminal.until("recording")
        terminal.process.sendintr()
        terminal.until(lambda text: "once" in text and "recording" in text)
        terminal.process.sendintr()
        terminal.until_end()

        assert terminal.is_restored()
        assert terminal.status == 128 + signal.SIGINT

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
    def test_signals(self, tmp_path: pathlib.Path, number: int) -> None:
        """Whatever ends the command through us, the terminal is as it was."""
        terminal = live(tmp_path, "sleep", 60)
        terminal.until("recording")
        terminal.process.kill(number)
        terminal.until_end()

        assert terminal.is_restored()
        assert terminal.status == 128 + number

    def test_kill(self, tmp_path: pathlib.Path) -> None:
        """SIGKILL leaves modes, screen and cursor as they were, and the recording goes on."""
        terminal = live(tmp_path, *burner("touch", 5, 6), in_shell=True)
        terminal.until("┤")
        os.kill(terminal.child, signal.SIGKILL)
        while b'"end":' not in (tmp_path / "run.journal.jsonl").read_bytes():
            time.sleep(0.05)

        terminal.read()
        restored = terminal.is_restored()
        terminal.process.close(force=True)

        assert restored
        assert Session.load(tmp_path / "run.journal.jsonl").finished

    def test_failing_view(self, tmp_path: pathlib.Path) -> None:
        """A view that fails is left out; the recording is not touched by it."""
        (tmp_path / "plotext.py").write_text("raise RuntimeError('broken')\n")
        terminal = live(tmp_path, *burner("prints", 2, 5), PYTHONPATH=f"{tmp_path}:{pathlib.Path.cwd()}")
        terminal.until_end()

        assert b"steps aside" in terminal.written
        assert b"line 1 of the command" in terminal.written
        assert terminal.status == 0

    def test_stopped_and_continued(self, tmp_path: pathlib.Path) -> None:
        """Ctrl-Z takes the view away, and it is there again when the job goes on."""
        terminal = PseudoTerminal(tmp_path, "monitor", "--live", "-o", "run.json", *burner("touch", 5, 7))
        terminal.until("┤")
        os.kill(terminal.process.pid, signal.SIGTSTP)
        terminal.until(lambda text: "recording" not in text)
        os.kill(terminal.process.pid, signal.SIGCONT)
        terminal.until("recording")
        terminal.until_end()

        assert terminal.is_restored()
        assert HANGING_S
