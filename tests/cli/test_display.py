from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nncftools import Session
from tests.cli.pseudo_terminal import PseudoTerminal

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform == "win32", reason="no terminals to make")]


def test_command_has_a_terminal(tmp_path: Path) -> None:
    """While output is relayed, it is a terminal of the same size, line ends are as alone, and prompts work."""
    script = (
        "import getpass, os, sys; print(sys.stdout.isatty(), sys.stderr.isatty(), *os.get_terminal_size(1)); "
        "name = input('name? '); print('hello', name, getpass.getpass('secret? ')); sys.exit(3)"
    )
    words = ("profile", "-q", "--no-plot", "--mark-on", "hello", "-o", "r.json", sys.executable, "-c", script)
    terminal = PseudoTerminal(tmp_path, *words, size=(90, 30))
    for prompt, answer in (("name? ", "Ada"), ("secret? ", "xyz")):
        terminal.until(prompt.rstrip())
        terminal.send(f"{answer}\r")
    terminal.until_end()

    assert terminal.written == b"True True 90 30\r\nname? Ada\r\nsecret? \r\nhello Ada xyz\r\n"
    assert terminal.status == 3
    assert [mark.name for mark in Session.load(tmp_path / "r.json").marks] == ["hello"]
