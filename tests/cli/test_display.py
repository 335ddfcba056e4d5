from __future__ import annotations

import pathlib
import sys

import pexpect
import pytest

from nncftools import Session
from tests.cli.pseudo_terminal import PseudoTerminal
from tests.conftest import HANGING_S, command_line

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform == "win32", reason="no terminals to make")]


@pytest.mark.long
def test_output_of_a_terminal_is_a_terminal(tmp_path: pathlib.Path) -> None:
    """On a terminal the command's output is a terminal of the same size, and line ends are unchanged."""
    script = "import os, sys; print(sys.stdout.isatty(), sys.stderr.isatty(), *os.get_terminal_size(1)); sys.exit(3)"
    words = ("profile", "-q", "--no-plot", "--mark-on", "x", "-o", "r.json", sys.executable, "-c", script)
    terminal = PseudoTerminal(tmp_path, *words, size=(90, 30))
    terminal.until_end()

    assert (terminal.written, terminal.status) == (b"True True 90 30\r\n", 3)


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
