from __future__ import annotations

import array
import fcntl
import json
import os
import shlex
import signal
import subprocess
import termios
from pathlib import Path

import pexpect
import psutil
import pytest

from nncftools import Session
from tests.cli.pseudo_terminal import PseudoTerminal
from tests.conftest import HANGING_S, command_line
from tests.trust.recorder import GO, JOURNAL, SESSION, result_of, state_of
from tests.waiting import until

pytestmark = [pytest.mark.process, pytest.mark.long]

WRITES_ON = f"echo before; until [ -e {GO} ]; do sleep 0.02; done; echo after && echo after >&2 && echo > wrote; exit 6"
"""Writes before and after an action of the test; creates a file on success."""
QUIET = ("-q", "--no-plot", "-i", "0.05", "-o", SESSION)
MARKED = ("profile", *QUIET, "--mark-on", "nothing")
PIPE_HOLDS = 1 << 16


def holds(journal: Path, text: str) -> bool:
    """Return whether a journal exists and contains a text."""
    return journal.exists() and text in journal.read_text()


class TestKilledCommandLine:
    @pytest.mark.parametrize(
        "words",
        [("monitor", *QUIET, "--live"), MARKED, (*MARKED, "--live"), ("monitor", *QUIET)],
        ids=["live", "marked", "both", "plain"],
    )
    def test_terminal_stays_the_commands(self, tmp_path: Path, words: tuple[str, ...]) -> None:
        """After SIGKILL of the command line, the command's output arrives, and it ends normally."""
        terminal = PseudoTerminal(tmp_path, *words, "--", "sh", "-c", WRITES_ON, in_shell=True)
        terminal.until("before", lambda _: holds(tmp_path / JOURNAL, "\n["))
        killed = psutil.Process(terminal.child)
        killed.kill()
        until(lambda: not killed.is_running(), "the end of the command line")
        (tmp_path / GO).touch()
        terminal.until(lambda text: text.count("after") == 2)
        until(lambda: holds(tmp_path / JOURNAL, '"end":'), "the end of the recording")
        terminal.kill()
        session = Session.load(tmp_path / JOURNAL)

        assert (tmp_path / "wrote").exists()
        assert session.finished
        assert session.exit is not None
        assert session.exit.code == 6

    def test_pipe_stays_the_commands(self, tmp_path: Path) -> None:
        """More than fits in a pipe arrives whole, and the reader sees its end."""
        script = f"until [ -e {GO} ]; do sleep 0.02; done; seq 100000; echo > wrote; exit 6"
        with subprocess.Popen(
            command_line(*MARKED, "sh", "-c", script), cwd=tmp_path, stdout=subprocess.PIPE
        ) as process:
            until(lambda: holds(tmp_path / JOURNAL, "\n["), "a sample")
            process.kill()
            process.wait()
            (tmp_path / GO).touch()
            assert process.stdout is not None
            output = process.stdout.read().decode()
        until(lambda: holds(tmp_path / JOURNAL, '"end":'), "the end of the recording")

        assert output.split() == [str(number) for number in range(1, 100_001)]
        assert (tmp_path / "wrote").exists()


class TestReaders:
    @pytest.mark.parametrize("words", [("monitor", *QUIET), MARKED], ids=["plain", "marked"])
    def test_that_leaves(self, tmp_path: Path, words: tuple[str, ...]) -> None:
        """When the reader closes the pipe, the command ends by SIGPIPE, as it would alone."""
        line = f"{shlex.join(command_line(*words, 'yes'))}; echo $? >&2"
        result = result_of(["sh", "-c", f"({line}) | head -1"], tmp_path)

        assert (result.stdout, result.stderr) == ("y\n", f"{128 + signal.SIGPIPE}\n")

    def test_that_is_slow(self, tmp_path: Path) -> None:
        """A pipe that another program has made non-blocking loses nothing."""
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        words = command_line(*MARKED, "seq", "50000")
        with subprocess.Popen(words, cwd=tmp_path, stdout=writer) as process, open(reader) as output:  # noqa: PTH123
            os.close(writer)
            waiting = array.array("i", [0])
            until(
                lambda: fcntl.ioctl(reader, termios.FIONREAD, waiting) == 0 and waiting[0] >= PIPE_HOLDS, "a full pipe"
            )
            numbers = output.read().split()

        assert numbers == [str(number) for number in range(1, 50_001)]
        assert process.returncode == 0

    def test_command_that_leaves_a_writer(self, tmp_path: Path) -> None:
        """A process that still holds the output after the command's end is waited for until we get a signal to end."""
        script = f"(until [ -e {GO} ]; do sleep 0.02; done) & exit 6"
        words = command_line(*MARKED, "sh", "-c", script)
        with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL) as process:
            until(lambda: holds(tmp_path / JOURNAL, '"end":'), "the end of the recording")
            until(lambda: process.send_signal(signal.SIGTERM) or process.poll() is not None, "our end")
            (tmp_path / GO).touch()

        left = tmp_path / SESSION if (tmp_path / SESSION).exists() else tmp_path / JOURNAL  # signals stop saving, too
        assert process.returncode == 6
        assert Session.load(left).finished


class TestDescriptors:
    @pytest.mark.parametrize("words", [("monitor", *QUIET), MARKED], ids=["plain", "marked"])
    @pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&-", "<&- 2>&-", "<&- >&- 2>&-"])
    def test_closed_streams(self, tmp_path: Path, words: tuple[str, ...], closed: str) -> None:
        """Closed streams stay closed for the command, and nothing else takes their place."""
        script = (
            's=; for n in 0 1 2; do [ -e /proc/$$/fd/$n ] && s=$s$n; done; echo "$s" > seen; '
            "[ ! -e /proc/$$/fd/1 ] || echo out; exit 5"
        )
        line = f"{shlex.join(command_line(*words, '--', 'sh', '-c', script))} {closed}"
        result = result_of(["sh", "-c", line], tmp_path)
        open_ones = "".join(
            n for n, text in zip("012", ("<&-", ">&-", "2>&-"), strict=True) if text not in closed.split()
        )

        assert (result.returncode, result.stderr) == (5, "")
        assert (tmp_path / "seen").read_text() == f"{open_ones}\n"
        assert result.stdout == ("out\n" if "1" in open_ones else "")
        assert Session.load(tmp_path / SESSION).finished


@pytest.mark.parametrize("words", [("monitor", *QUIET), MARKED], ids=["plain", "marked"])
def test_job_control(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Ctrl-Z stops command line, sampler and command; fg continues them, and the status is the command's."""
    starts_nothing = WRITES_ON.replace("sleep 0.02", ":")  # stopped between fork and exec, a child would hold it in D
    shell = pexpect.spawn("bash", ["--norc", "-i"], cwd=str(tmp_path), timeout=HANGING_S, encoding="utf-8", echo=False)
    shell.sendline(shlex.join(command_line(*words, "--", "sh", "-c", starts_nothing)))
    shell.expect("before\r\n")
    until(lambda: holds(tmp_path / JOURNAL, "\n["), "a sample")
    (ours,) = psutil.Process(shell.pid).children()
    start = next(
        json.loads(line)["start"]
        for line in (tmp_path / JOURNAL).read_text().splitlines()
        if line.startswith('{"start"')
    )
    every = [ours.pid, start["sampler_pid"], start["pid"]]
    shell.sendcontrol("z")
    shell.expect("Stopped")
    until(lambda: [state_of(pid) for pid in every] == ["T"] * 3, "the stop of all")
    (tmp_path / GO).touch()
    shell.sendline("fg; echo status $?")
    shell.expect("after\r\n.*status 6\r\n")
    shell.close(force=True)

    assert Session.load(tmp_path / SESSION).finished
