from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pexpect
import pytest

from nncftools import Session
from tests.conftest import HANGING_S, Run, command_line

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform == "win32", reason="no terminals to make")]


def in_terminal(folder: pathlib.Path, *words: object) -> tuple[str, int | None]:
    """Run nncf-tools in a terminal of 30 lines and 90 columns; return what it shows and its exit status."""
    argv = command_line(*words)
    child = pexpect.spawn(argv[0], argv[1:], cwd=str(folder), dimensions=(30, 90), encoding="utf-8", timeout=HANGING_S)
    child.expect(pexpect.EOF)
    child.close()
    return child.before, child.exitstatus


@pytest.mark.long
def test_output_of_a_terminal_is_a_terminal(tmp_path: pathlib.Path) -> None:
    """On a terminal the command's output is a terminal of the same size, and line ends are unchanged."""
    script = "import os, sys; print(sys.stdout.isatty(), sys.stderr.isatty(), *os.get_terminal_size(1)); sys.exit(3)"
    shown, status = in_terminal(
        tmp_path, "profile", "-q", "--no-plot", "--mark-on", "x", "-o", "r.json", sys.executable, "-c", script
    )

    assert (shown, status) == ("True True 90 30\r\n", 3)


def test_reads_the_terminal(tmp_path: pathlib.Path) -> None:
    """Input and password prompts work while output is relayed."""
    script = "import getpass; name = input('name? '); print('hello', name, getpass.getpass('secret? '))"
    argv = command_line(
        "profile", "-q", "--no-plot", "--mark-on", "hello", "-o", "r.json", sys.executable, "-c", script
    )
    child = pexpect.spawn(argv[0], argv[1:], cwd=str(tmp_path), encoding="utf-8", timeout=HANGING_S)
    child.expect_exact("name? ")
    child.sendline("Ada")
    child.expect_exact("secret? ")
    child.sendline("xyz")
    child.expect_exact("hello Ada xyz")
    child.expect(pexpect.EOF)
    child.close()

    assert child.exitstatus == 0
    assert [mark.name for mark in Session.load(tmp_path / "r.json").marks] == ["hello"]


@pytest.mark.long
def test_interrupt_reaches_the_command(tmp_path: pathlib.Path) -> None:
    """Ctrl-C ends the command as without the relay."""
    script = "import time; print('ready', flush=True)\nwhile True: time.sleep(0.05)"  # Python may miss one in a sleep
    words = ("profile", "-q", "--no-plot", "--mark-on", "x", "-o", "r.json", sys.executable, "-S", "-c", script)
    argv = command_line(*words)
    child = pexpect.spawn(argv[0], argv[1:], cwd=str(tmp_path), encoding="utf-8", timeout=HANGING_S)
    child.expect_exact("ready")
    child.sendintr()
    child.expect(pexpect.EOF)
    child.close()

    assert child.exitstatus == 130


@pytest.mark.long
def test_much_output_passes_whole(nncf_tools: Run) -> None:
    """Megabytes on both streams arrive complete and in order."""
    script = "import sys\nfor n in range(100_000): print(n, 'x' * 20); print(n, file=sys.stderr)"
    result = nncf_tools(
        "profile", "-q", "--no-plot", "--mark-on", "nothing", "-o", "r.json", sys.executable, "-c", script
    )
    numbers = [int(line.split()[0]) for line in result.stdout.splitlines()]

    assert numbers == list(range(100_000))
    assert re.findall(r"^\d+$", result.stderr, re.MULTILINE) == [str(number) for number in range(100_000)]


@pytest.mark.long
def test_reader_that_leaves(tmp_path: pathlib.Path) -> None:
    """If the reader of our output is gone, the command notices as with its own pipe."""
    words = command_line("profile", "-q", "--no-plot", "--mark-on", "x", "-o", "r.json", "yes")
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(10)
        process.stdout.close()
        status = process.wait(HANGING_S)

    assert status in {1, 141}  # killed by SIGPIPE, or failed with an error


def test_closed_output(tmp_path: pathlib.Path) -> None:
    """A closed stream stays closed for the command."""
    inner = " ".join(
        command_line("profile", "-q", "--no-plot", "--mark-on", "x", "-o", "r.json", "sh", "-c", "'echo x >&2'")
    )
    result = subprocess.run(
        ["sh", "-c", f"{inner} >&-"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=HANGING_S
    )

    assert (result.returncode, result.stderr) == (0, "x\n")
