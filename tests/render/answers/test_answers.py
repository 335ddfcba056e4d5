"""One session, one answer: what outputs say of real recordings is what the session says."""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from nncftools import Session
from nncftools.analysis.summary import cpu_s
from nncftools.cli import app
from nncftools.errors import NncfToolsError
from nncftools.render import view
from nncftools.render.sentences import span_text
from nncftools.render.view import View
from nncftools.session.model import Process
from tests.conftest import BURNERS, HANGING_S, command_line
from tests.render.answers.known import Figure, Known, numbers, said
from tests.render.answers.outputs import names, output
from tests.render.page_content import texts_of

pytestmark = pytest.mark.process

OPERATIONS = [sys.executable, str(BURNERS / "answers.py"), "."]
PLAIN = """
import time
held = b"x" * (41 << 20)
for _ in range(3_000_000): pass
more = held * 2
for _ in range(4):  # a plateau that creeps upwards, by less than a peak's drift
    time.sleep(0.05)
    crept = bytearray(b"x") * 40_000
    held = [held, crept]
"""
ITSELF = f"""
import nncftools, runpy, sys
sys.path.insert(0, {str(BURNERS)!r})
with nncftools.Profiler(0.02) as profiler:
    runpy.run_path({OPERATIONS[1]!r})
profiler.session.save("run.json")
"""
QUIETLY = ("-q", "-o", "run.json", "--")
RECORDINGS = {
    "profile": command_line("profile -i 0.03 -t rss,anon,file,pss,system", *QUIETLY, *OPERATIONS),
    "monitor": command_line("monitor -i 0.01", *QUIETLY, sys.executable, "plain.py"),
    "Profiler": [sys.executable, "itself.py", "."],
}
"""The command line's, with operations, children and stacks, and without; and that of a program that records itself."""
NEEDS_STACKS = {"collapsed", "speedscope"}
OVER_TIME = {"csv", "parquet", "memory-log", "session", "perfetto", "collapsed", "speedscope"}
"""Most of their numbers are samples, rates and frames; goldens have the others."""
CPU_SCALE = re.compile(r"CPU[^\n|]{0,24}%|% of (?:one|all|\d+) cores?")


class Recorded(NamedTuple):
    """A recording and what every output says of it."""

    session: Session
    known: Known
    outputs: dict[str, str]


@pytest.fixture(
    scope="module",
    params=["profile", *(pytest.param(name, marks=pytest.mark.long) for name in ("monitor", "Profiler"))],
)
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Record a program, and make every output."""
    folder = tmp_path_factory.mktemp("recorded")
    for name, program in {"plain.py": PLAIN, "itself.py": ITSELF}.items():  # files: a command's words may be figures
        (folder / name).write_text(program)
    subprocess.run(RECORDINGS[request.param], cwd=folder, check=True, timeout=HANGING_S, capture_output=True)
    session = Session.load(folder / "run.json")

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            patch.chdir(folder)
            patch.setattr(sys, "argv", [app.PROGRAM, *map(str, words)])
            status = app.run()
        return subprocess.CompletedProcess(words, status, out.getvalue(), err.getvalue())

    found = {}
    for name in names():
        try:
            found[name] = output(name, session, folder, run)
        except NncfToolsError:
            assert name in NEEDS_STACKS
    return Recorded(session, Known(session), found)


def problems(name: str, text: str, of: Recorded) -> list[str]:
    """Return what an output says that the session does not."""
    found = [f"{figure} is no figure of the session" for figure in of.known.unknown(_figures(name, text))]
    found += [f"another scale of CPU: {words}" for words in CPU_SCALE.findall("" if name in OVER_TIME else text)]
    return found


def _figures(name: str, text: str) -> Iterator[Figure]:
    """Yield all figures of an output, of texts and of documents; none of what it shows over time."""
    if name in OVER_TIME:
        return
    if name == "html":
        yield from said(texts_of(text))
        return
    try:
        document = json.loads(text)
    except json.JSONDecodeError:
        yield from said(text)
        return
    yield from said("\n".join(_texts(document)))
    for value in numbers(_without_lines(document)):
        yield Figure(value, 0.5 if isinstance(value, int) else 1e-6, text=f"{value}")


def _texts(document: Any) -> Iterator[str]:  # noqa: ANN401 — JSON
    if isinstance(document, str):
        yield document
    elif isinstance(document, list | dict):
        for value in document.values() if isinstance(document, dict) else document:
            yield from _texts(value)


def _without_lines(document: Any) -> Any:  # noqa: ANN401 — JSON
    """Return a document without the line numbers of code."""
    if isinstance(document, list):
        return [_without_lines(value) for value in document]
    if isinstance(document, dict):
        return {key: _without_lines(value) for key, value in document.items() if key != "line"}
    return document


def test_every_output_says_the_same(recorded: Recorded) -> None:
    """Each figure of each output is the session's, to the precision in which it is written."""
    found = {name: problems(name, text, recorded) for name, text in recorded.outputs.items()}

    assert {name: of for name, of in found.items() if of} == {}


def test_cpu_time_of_all_processes(recorded: Recorded) -> None:
    """The CPU time of the run is not below the sum of its processes."""
    spent_s = cpu_s(recorded.session)

    assert spent_s is not None
    assert spent_s >= sum(process.cpu_s or 0 for process in recorded.session.processes) - 1e-9


def test_a_peak_is_not_below_a_part_of_it(recorded: Recorded) -> None:
    """No operation and no process of its own held more than the peak of the run."""
    parts = [*(one.rss_peak for one in recorded.session.operations), *map(_held, recorded.session.processes)]

    assert max(filter(None, parts)) <= (recorded.session.rss_peak.low or 0)


def _held(process: Process) -> int:
    return max(process.peak_rss or 0, process.high_water_mark or 0)


_said: list[str] = []


def report(_session: Session, _view: View) -> str:
    """Be a new format."""
    return _said[-1]


@pytest.mark.parametrize(
    "words, wrong",
    [
        ("RSS peak {peak} MiB at {at}", 0),
        ("RSS peak {more} MiB at {at}", 1),
        ("RSS peak {peak} MiB at 7,654.321 s", 1),
        ("RSS peak {peak} MiB at {at}, CPU 6,543.21 %", 2),
    ],
    ids=["right", "another peak", "another moment", "another scale"],
)
def test_a_wrong_figure_is_found(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: str, wrong: int
) -> None:
    """A new format is one of the outputs, and each figure that is not the session's is found."""
    peak = recorded.session.rss_peak
    size = (peak.low or 0) / 2**20
    at = span_text(peak.span_s or (0.0, 0.0))
    _said.append(words.format(peak=f"{size:.1f}", more=f"{size + 12_345:.1f}", at=at))
    monkeypatch.setitem(view.FORMATS, "new", f"{__name__}:{report.__name__}")

    assert "new" in names()
    assert len(problems("new", output("new", recorded.session, tmp_path, print), recorded)) == wrong
