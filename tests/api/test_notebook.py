from __future__ import annotations

import os
import re
import resource
import subprocess
import sys

import pytest

import nncftools
from nncftools import Profiler
from nncftools.errors import NncfToolsError
from tests.api.sampled import begin_to_read, touch, wait_for_sample, wait_for_samples
from tests.conftest import HANGING_S
from tests.made_up import MIB

SCRIPT = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell("%load_ext nncftools")
for interval in ("0.01", "soon"):
    shell.run_cell(f"%%memory {interval}\\nheld = bytearray(64 << 20)\\nprint('its own output', 5)")
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


@pytest.mark.long
@pytest.mark.process
def test_cell_is_run_and_reported(shown: list[str]) -> None:
    """The cell runs in the user's namespace; its peak and how much more that is than before follow its output."""
    assert "its own output 5" in shown[0]
    after = shown[0].partition("its own output")[2]
    assert re.match(r" 5\nPeak memory [\d.]+ MiB, 6\d\.\d MiB more than before the cell\n", after)
    assert "Recorded this kernel" in after
    assert "Next: s = _" in after
    assert shown[0].endswith("Session with report Session with plot\nkept\n")


@pytest.mark.long
@pytest.mark.process
def test_magic_explains_itself(shown: list[str]) -> None:
    """``%%memory?`` shows how it is used and what its result is."""
    assert "a sample every 0.05 s" in shown[-1]
    assert "nncftools.Session" in shown[-1]


@pytest.mark.long
@pytest.mark.process
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


@pytest.mark.long
@pytest.mark.process
def test_wrong_interval_is_one_line(shown: list[str]) -> None:
    """An invalid interval is refused without a traceback, and the cell does not run."""
    assert "seconds from 0.001 to a year expected, found 'soon'" in shown[1]
    assert "its own output" not in shown[1]
    assert shown[1].endswith("missing\n")


@pytest.mark.process
def test_memory_of_an_operation() -> None:
    """An operation's delta is what it allocates, also for a repeated name."""
    begin_to_read()
    with Profiler(0.01) as profiler:
        held = []
        for _ in range(2):
            wait_for_sample(profiler)
            with profiler.operation("grow"):
                wait_for_sample(profiler)
                held.append(touch(40))
                wait_for_sample(profiler)
    grown = [phase.delta for phase in profiler.session.operations]

    assert len(held) == 2
    assert grown == [pytest.approx(40 * MIB, rel=0.05)] * 2


@pytest.mark.process
def test_nested_profilers() -> None:
    """A profiler has its own operations and those of none; what another one marks inside of it cuts nothing."""
    with Profiler(0.01) as outer:
        outer.mark("export")
        with Profiler(0.01) as inner:
            inner.mark("prepare")
            with nncftools.operation("anybody's"):
                pass
        outer.mark("compile")
    of_outer, of_inner = ([(one.name, one.depth) for one in profiler.session.operations] for profiler in (outer, inner))
    export, _, compiled = outer.session.operations

    assert of_outer == [("export", 0), ("anybody's", 1), ("compile", 0)]
    assert of_inner == [("prepare", 0), ("anybody's", 1)]
    assert export.end_s == compiled.start_s


def test_without_a_recording() -> None:
    """If nothing is recorded, operations do nothing, and asking for the session says what to do."""
    profiler = Profiler()
    with profiler.operation("unseen"):
        profiler.mark("unseen")

    with pytest.raises(NncfToolsError, match="start the profiler first"):
        _ = profiler.session


@pytest.mark.process
def test_started_twice() -> None:
    """A running profiler cannot be started; a stopped one records again."""
    with Profiler(0.01) as profiler:
        profiler.mark("first")
        with pytest.raises(RuntimeError, match="already"):
            profiler.start()
    with profiler:
        profiler.mark("second")

    assert [mark.name for mark in profiler.session.marks] == ["second"]


@pytest.mark.process
def test_many_open_files() -> None:
    """A process with more open files than select() takes is recorded, stacks too, and to the end."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4_096, limits[1]))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_500)]
    try:
        with Profiler(stacks=True) as profiler:
            wait_for_samples(profiler, 2)
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    assert profiler.session is not None
    assert profiler.session.warnings == []
