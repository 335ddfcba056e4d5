"""Every output of a session, as text: formats, pictures, what a notebook shows, the end of a replay, a comparison."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import io
import itertools
import pkgutil
import re
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import nncftools.render
from nncftools.api.recorder import Session
from nncftools.cli import screen
from nncftools.cli.compare import FORMATS as OF_COMPARE
from nncftools.live.figures import Machine, ViewSettings, status_line
from nncftools.live.follower import Replay
from nncftools.live.layout import Drawing
from nncftools.render import text
from nncftools.render.view import FORMATS, View, format_named, label

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import Run


COMPARED = [f"compare {name}" for name in OF_COMPARE]
GATES = ("peak_rss", "duration", "cpu")
SHOWN = ["default report", "five lines", "notebook", "replay, line", "replay, frame"]
_SVG = "{http://www.w3.org/2000/svg}"


def view_of(session: Session) -> View:
    """Return what to show: RSS and its parts, as far as they were recorded."""
    return View([name for name in ("rss", "anon", "file") if name in session.samples], depth=2)


def pictures() -> dict[str, Callable[[Session, View, Path], None]]:
    """Return the functions that draw a session, by the names of their modules."""
    found = {}
    for module in pkgutil.iter_modules(nncftools.render.__path__):
        draw = getattr(importlib.import_module(f"nncftools.render.{module.name}"), "draw", None)
        if draw is not None and list(inspect.signature(draw).parameters)[:3] == ["session", "view", "path"]:
            found[f"picture {module.name}"] = draw
    return found


def names() -> list[str]:
    """Return the names of all outputs."""
    return [*FORMATS, *pictures(), *SHOWN, *COMPARED, "gates"]


def output(name: str, session: Session, folder: Path, run: Run) -> str:
    """Return the text of an output; ``run`` runs the command line."""
    if name in FORMATS:
        return _of_format(name, session, folder)
    if name in COMPARED:
        return _compared(session, folder, run, "--format", name.removeprefix("compare "), "--details").stdout
    if name == "gates":
        limits = (("--fail-if", f"{figure}>+0%") for figure in GATES)
        return _compared(session, folder, run, *itertools.chain(*limits)).stderr
    if name in SHOWN:
        return _shown(name, session)
    import matplotlib as mpl

    with mpl.rc_context({"svg.fonttype": "none"}):
        pictures()[name](session, view_of(session), folder / "run.svg")
    return "\n".join(_words(ET.parse(folder / "run.svg").getroot()))  # noqa: S314 — our own file


def _of_format(name: str, session: Session, folder: Path) -> str:
    content: Any = format_named(name)(session, view_of(session))
    if name == "parquet":
        import pandas as pd

        table: str = pd.read_parquet(io.BytesIO(content)).to_csv()
        return table
    if isinstance(content, dict):
        for file, write in content.items():
            write(folder / file)
        texts = {file: (folder / file).read_text() for file in content if file.endswith(".txt")}
        return "".join(
            text.replace("memory:", f"memory of {label(file.partition('_')[0])}:") for file, text in texts.items()
        )
    return content.decode() if isinstance(content, bytes) else screen.plain(content)


def _words(element: ET.Element) -> Iterator[str]:
    """Yield the texts of a picture without the labels of its axes' ticks."""
    if element.get("id", "").startswith(("xtick", "ytick")):
        return
    if element.tag == f"{_SVG}text":
        yield "".join(element.itertext())
    for inner in element:
        yield from _words(inner)


def _shown(name: str, session: Session) -> str:
    if name == "default report":
        return screen.plain(text.report(session, dataclasses.replace(view_of(session), brief=True)))
    if name == "five lines":
        return text.five_lines(session, view_of(session).metrics)
    if name == "notebook":
        return text.notebook_cell(session, view_of(session)).partition("\n")[2]
    replay = Replay(session)
    for now_s in itertools.chain(session.samples.time_s, [session.duration_s]):
        replay.advance(now_s)
    look, here = ViewSettings(metrics=view_of(session).metrics, colours=None), Machine(is_here=False)
    if name == "replay, line":
        return status_line(replay.run, look, here)
    return re.sub(r"\x1b\[[\d;]*m", "", "\n".join(Drawing(here).frame(replay.run, look, 120, 40)))


def _compared(session: Session, folder: Path, run: Run, *options: object) -> subprocess.CompletedProcess[str]:
    """Compare a session with itself."""
    paths = [session.save(folder / f"{name}.json") for name in ("base", "new")]
    result = run("compare", *paths, *options)
    assert result.returncode == 0, result.stderr
    return result
