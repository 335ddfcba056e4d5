from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from nncftools.analysis.session import Session
from nncftools.errors import NncfToolsError
from nncftools.render import panels
from nncftools.render import view as render_view
from nncftools.render.view import View, command_text
from nncftools.session.model import END_UNKNOWN, Mark
from tests.made_up import marks, mib, session

SPARSE = {
    "no metric": session({}),
    "no sample": session({"rss": []}),
    "one sample": session({"rss": mib(100)}),
    "nothing known": session({"rss": [None, None]}),
    "an operation without end": session(marks=marks("Export 0.2")),
    "operations whose end is unknown": session(
        marks=[
            Mark(name="Export", start_s=0, end_s=1, error=END_UNKNOWN),
            Mark(name="Export", start_s=0.5, end_s=0.5, error=END_UNKNOWN),
        ]
    ),
    "an operation before the first sample": session({"rss": []}, marks=marks("Export 0")),
    "very many operations": session(
        marks=[Mark(name=f"{place % 50}", start_s=place / 300, end_s=(place + 1) / 300) for place in range(300)]
    ),
}
OF_STACKS = ("collapsed", "speedscope")
"""Formats that say so when a session has no stacks."""


@pytest.mark.process
def test_naming_formats_loads_none() -> None:
    """The registry is imported with the command line: it loads no renderer and no library."""
    program = "import sys; import nncftools.render.view; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    ours = [name for name in loaded if name.startswith("nncftools.render.")]

    assert ours == ["nncftools.render.view"]
    assert {"numpy", "rich", "plotly", "matplotlib"}.isdisjoint(loaded)


@pytest.mark.parametrize("of", SPARSE.values(), ids=SPARSE)
def test_panels_of_next_to_nothing(of: Session, tmp_path: Path) -> None:
    """Sessions with next to nothing in them are drawn, also without any metric of memory."""
    panels.draw(of, View(metrics=[name for name in of.samples if name == "rss"]), tmp_path / "run.svg")

    assert (tmp_path / "run.svg").stat().st_size


@pytest.mark.parametrize("rss", [-(2.0**63), 2.0**63])
def test_values_far_off_the_canvas(rss: float) -> None:
    """A chart of values as far apart as they can be is drawn."""
    of = session({"rss": mib(1, 2, 3)})
    of.samples["rss"][1] = rss
    screen = importlib.import_module("nncftools.cli.screen")

    assert screen.plain(render_view.format_named("terminal")(of, View(metrics=["rss"])))


@pytest.mark.parametrize("of", SPARSE.values(), ids=SPARSE)
@pytest.mark.parametrize("name", render_view.FORMATS)
def test_next_to_nothing(name: str, of: Session, tmp_path: Path) -> None:
    """Sessions with next to nothing in them, or with far too much, are reported in every format, or it says why not."""
    view = View(metrics=[name for name in of.samples if name == "rss"])
    if name in OF_STACKS:
        with pytest.raises(NncfToolsError, match=f"^{name} needs the stacks of the peak; this session has none$"):
            render_view.format_named(name)(of, view)
        return
    content = render_view.format_named(name)(of, view)
    if isinstance(content, dict):
        for file, write in content.items():
            write(tmp_path / file)
            assert (tmp_path / file).stat().st_size
    elif not isinstance(content, bytes):
        screen = importlib.import_module("nncftools.cli.screen")
        assert screen.plain(content).strip()


@pytest.mark.parametrize(
    "command, name, expected",
    [
        (["python", "a b.py"], "run", "python 'a b.py'"),
        (["echo", "\x1b[0m"], "run", "echo '\\x1b[0m'"),
        ([], "run", "run"),
        ([], "", "unknown command"),
    ],
)
def test_command_text(command: list[str], name: str, expected: str) -> None:
    """The command is shown as one could type it, else the name."""
    assert command_text(session(command=command, name=name)) == expected
