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
    shell.run_cell("print(*(f'{type(_).__name__} with {name}' for name in ('report', 'plot') if hasattr(_, name)))")
    shell.run_cell("print('kept' if globals().pop('held', None) else 'missing')")
    print("next", flush=True)
import asyncio
shell.run_cell("import asyncio; from nncftools import Profiler")
cells = (
    "%%memory\\nawait asyncio.sleep(0)\\nprint('awaited')",
    "%%memory\\nprint('without')",
    "with Profiler() as p:\\n    await asyncio.sleep(0.01)\\nprint(len(p.session.marks))",
)
async def kernel():
    for cell in cells:  # as ipykernel does: the cell is run inside of its loop
        await shell.run_cell_async(cell, transformed_cell=shell.transform_cell(cell))
        print("next", flush=True)
asyncio.run(kernel())
shell.run_cell("%%memory\\nawait asyncio.sleep(0)\\nprint('awaited in a terminal')")
print("next", flush=True)
shell.run_cell("%%memory?", store_history=True)
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
    after = shown[0].partition("its own output")[2]
    assert "RSS" in after
    assert "Recorded this kernel" in after
    assert "Next: s = _" in after
    assert shown[0].endswith("kept\n")


def test_result_is_the_session(shown: list[str]) -> None:
    """The next cell has the session as ``_``."""
    assert "Session with report Session with plot\n" in shown[0]


def test_magic_explains_itself(shown: list[str]) -> None:
    """``%%memory?`` shows how it is used and what its result is."""
    assert "a sample every 0.05 s" in shown[-1]
    assert "nncftools.Session" in shown[-1]


def test_await_in_a_notebook(shown: list[str]) -> None:
    """Where an event loop runs, as in a notebook, a top-level await is refused in one line; what it proposes works."""
    refused, without, proposed, in_terminal = shown[-5:-1]

    assert refused.startswith("UsageError: %%memory cannot run a cell that awaits at its top level")
    assert refused.count("\n") == 1
    assert "with nncftools.Profiler() as p" in refused
    assert "awaited" not in refused
    assert "without" in without
    assert "Recorded this kernel" in without
    assert proposed.endswith("0\n")
    assert "awaited in a terminal" in in_terminal
    assert "Recorded this kernel" in in_terminal


def test_wrong_interval_is_one_line(shown: list[str]) -> None:
    """An invalid interval is refused without a traceback, and the cell does not run."""
    assert "seconds from 0.001 to a year expected, found 'soon'" in shown[1]
    assert "its own output" not in shown[1]
    assert shown[1].endswith("missing\n")
