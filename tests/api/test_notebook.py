from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import HANGING_S

pytestmark = [pytest.mark.long, pytest.mark.process]

SCRIPT = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell("%load_ext nncftools")
for interval in ("0.01", "soon"):
    shell.run_cell(f"%%memory {interval}\\nheld = bytearray(5)\\nprint('its own output', len(held))")
    shell.run_cell("print('kept' if globals().pop('held', None) else 'missing')")
    print("next", flush=True)
"""


@pytest.fixture(scope="module")
def shown() -> list[str]:
    """Run cells under the magic in a real IPython; return the output for a valid and an invalid interval."""
    words = [sys.executable, "-W", "ignore", "-c", SCRIPT]
    done = subprocess.run(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=HANGING_S
    )
    return done.stdout.split("next\n")


def test_cell_is_run_and_reported(shown: list[str]) -> None:
    """The cell runs in the user's namespace, and its cost follows its output."""
    assert "its own output 5" in shown[0]
    assert "RSS" in shown[0].partition("its own output")[2]
    assert shown[0].endswith("kept\n")


def test_wrong_interval_is_one_line(shown: list[str]) -> None:
    """An invalid interval is refused without a traceback, and the cell does not run."""
    assert "seconds from 0.001 to a year expected, found 'soon'" in shown[1]
    assert "its own output" not in shown[1]
    assert shown[1].endswith("missing\n")
