from __future__ import annotations

import subprocess
import sys

SCRIPT = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell("%load_ext nncftools")
shell.run_cell("%%memory {line}\\nheld = bytearray(5)\\nprint('its own output', len(held))")
shell.run_cell("print('kept', len(held))")
"""


def run(line: str) -> str:
    """Run a cell under the magic in a real IPython; return what it prints."""
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT.format(line=line)]
    both = subprocess.STDOUT
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=both, text=True, check=False).stdout


def test_cell_is_run_and_reported() -> None:
    """The cell runs in the user's namespace, and what it cost is shown behind its output."""
    shown = run("0.01")

    assert "its own output 5" in shown
    assert "RSS" in shown.partition("its own output")[2]
    assert "kept 5" in shown


def test_wrong_interval_is_one_line() -> None:
    """An interval that is none is refused without a traceback, and the cell does not run."""
    shown = run("soon")

    assert "seconds from 0.001 to a year expected, found 'soon'" in shown
    assert "its own output" not in shown
