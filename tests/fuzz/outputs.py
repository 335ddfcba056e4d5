"""Reads a file as nncf-tools does, and makes every output of what was read."""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from nncftools.analysis import comparison, gates, ranks
from nncftools.analysis.session import Session
from nncftools.cli import opening, options, parameters, screen
from nncftools.compression import filling, outputs
from nncftools.compression.reading import FIGURES, STANDARD
from nncftools.compression.results import Bound, Bounds
from nncftools.errors import NncfToolsError
from nncftools.live import figures
from nncftools.live.figures import ViewSettings
from nncftools.live.follower import Follower, Replay
from nncftools.live.layout import Drawing
from nncftools.marks import calls
from nncftools.metrics import memory_of
from nncftools.reading_marks.collecting import write_sidecar
from nncftools.render import build_up, comparison_outputs, overlay, panels, plot, sentences, summary_json
from nncftools.render.view import FORMATS, View, format_named
from nncftools.units import MemoryUnit
from tests.fuzz import corpus, interpreters

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tests.fuzz.corpus import Sample

    Output = Callable[[Session, Path], object]

SLOW = ("memory-log", "html", "parquet", "plot", "panels", "overlay", "live")
"""Outputs that take 50 ms or more: each case makes one of them, and all the others."""
_GATES = ("peak_rss>+5%", "duration>90s", "cpu@Export>1s")


@functools.cache
def _other() -> Session:
    return Session.load(corpus.DATA / "runs/recorded.json")


def _view(session: Session) -> View:
    return View(options.memory_types(None, memory_of(session.samples.metrics)), MemoryUnit.MiB, depth=3)


def _format(name: str, session: Session, folder: Path) -> None:
    content: Any = format_named(name)(session, _view(session))
    if isinstance(content, dict):
        for file, write in content.items():
            write(folder / file)
    elif not isinstance(content, bytes | str):
        screen.plain(content)


def _save(session: Session, folder: Path) -> None:
    """Save it and load it again: what we write, we read."""
    before = len(session.marks)
    assert len(Session.load(session.save(folder / "saved.json.gz")).marks) == before


def _build_up(session: Session, _: Path) -> None:
    names = [operation.name for operation in session.operations[:2]]
    for operation, at_s in [(None, None), (None, session.duration_s / 2), *((name, None) for name in names)]:
        with contextlib.suppress(NncfToolsError):
            whole = build_up.build_up_report(session, MemoryUnit.MiB, operation, at_s)
            screen.plain(build_up.as_text(whole))
            build_up.as_markdown(whole)


def _compare(session: Session, _: Path) -> None:
    one, other = (comparison.measure_run(each, name, 3) for each, name in ((_other(), "one"), (session, "other")))
    for base, new in ((one, other), (other, one), (other, other)):
        with contextlib.suppress(NncfToolsError):
            found = comparison.compare_runs([base], [new, new])
            verdicts = []
            for text in _GATES:
                with contextlib.suppress(NncfToolsError):
                    verdicts.append(gates.judge_gate(gates.parse_gate(text), found))
            msgspec.json.encode(summary_json.document([(found, verdicts)]))
            screen.plain(comparison_outputs.as_text(found, MemoryUnit.MiB))
            comparison_outputs.as_markdown(found, MemoryUnit.MiB, verdicts)
            for service in ("bencher", "benchmark-action"):
                summary_json.write_history(service, {"one": [base, new]})


def _merge(session: Session, _: Path) -> None:
    with contextlib.suppress(NncfToolsError):
        merged = ranks.merge_ranks({"a.json": session, "b.json": _other()})
        for name in ("text", "json", "perfetto"):
            _format(name, merged, Path())


def _overlay(session: Session, folder: Path) -> None:
    curves = [[overlay.curve(session)], [overlay.curve(_other())]]
    metric = overlay.common_metric(curves)
    if metric is not None:
        overlay.draw([("a", curves[0]), ("b", curves[1])], metric, MemoryUnit.MiB, folder / "overlay.svg")


def _live(session: Session, _: Path) -> None:
    replay, drawing = Replay(session), Drawing(figures.Machine(is_here=False))
    for share in (0.0, 0.3, 1.0, 1.1):
        replay.advance(session.duration_s * share)
        drawing.frame(replay.run, _look(session), 100, 30)
        figures.status_line(replay.run, _look(session), figures.Machine(is_here=False))


def _look(session: Session) -> ViewSettings:
    return ViewSettings(_view(session).metrics, MemoryUnit.MiB, state="replay")


def _follow(path: Path) -> None:
    """Read a journal as the live view does, and draw it."""
    try:
        follower = Follower(path)
    except OSError:
        return
    with follower:
        follower.read()
        look = ViewSettings(["rss"], MemoryUnit.MiB, unicode=False, colours=None, state="watch")
        Drawing(figures.Machine(is_here=False)).frame(follower.run, look, 80, 20)
        figures.status_line(follower.run, look, figures.Machine(is_here=False))


OUTPUTS: dict[str, Output] = {
    **{name: functools.partial(_format, name) for name in FORMATS},
    "save": _save,
    "peak": _build_up,
    "sidecar": lambda session, folder: write_sidecar(session.marks, folder / "written.json"),
    "compare": _compare,
    "merge": _merge,
    "hints": lambda session, _: sentences.hints(session, MemoryUnit.MiB),
    "live": _live,
    "plot": lambda session, folder: plot.draw(session, _view(session), folder / "plot.svg"),
    "panels": lambda session, folder: panels.draw(session, _view(session), folder / "panels.svg"),
    "overlay": _overlay,
}


def read_and_show(sample: Sample, folder: Path, slow: str, only: Collection[str] = OUTPUTS) -> bool:
    """Read a sample from ``folder`` and make its outputs, ``slow`` among them; return whether it could be read.

    Any error but NncfToolsError is a bug. ``only`` names the outputs to make.
    """
    path = folder / (sample.opened or sample.name)
    try:
        shown = _READERS[sample.reader](path, folder / sample.name)
    except NncfToolsError:
        return False
    if shown is None:
        return True
    if path.name.endswith(".journal.jsonl"):
        with contextlib.suppress(NncfToolsError):
            _follow(path)
    for name, output in OUTPUTS.items():
        if name in only and (name == slow or name not in SLOW):
            with contextlib.suppress(NncfToolsError):
                output(shown, folder)
    return True


def _session(path: Path, _: Path) -> Session:
    return opening.open_session(path, path.parent)


def _with_marks(path: Path, marks: Path) -> Session:
    return opening.open_session(path, path.parent, sidecars=[marks])


def _table(path: Path, _: Path) -> None:
    columns = path.read_bytes()
    also = [figure for figure in FIGURES if figure.column.encode() in columns]
    bounds = Bounds([Bound(figure, 5.0, is_inside=True, text="5") for figure in also])
    request = outputs.Request([path], path.parent / "out", ("svg", "html"), (*STANDARD,), extra=True)
    outputs.make(request._replace(bounds=bounds, also=also[:2]))


def _evaluation(path: Path, _: Path) -> None:
    filling.read_lm_eval(path, filling.parse_tasks(["mmlu:acc"]))


def _similarity(path: Path, _: Path) -> None:
    filling.read_similarity(path)


def _project(path: Path, _: Path) -> None:
    project = parameters._read_project.__wrapped__(path)
    try:
        calls.parse([] if project is None else project.texts.get("mark-calls", ()))
    except ValueError as error:
        raise NncfToolsError(str(error)) from error


def _interpreter(path: Path, _: Path) -> None:
    if not interpreters.read(path, int(path.suffix.removeprefix("."))):
        raise NncfToolsError("no stack")


def _program(path: Path, _: Path) -> None:
    if not interpreters.read_program(path):
        raise NncfToolsError("no symbol")


_READERS: dict[str, Callable[[Path, Path], Session | None]] = {
    corpus.SESSION: _session,
    corpus.MARKS: _with_marks,
    corpus.TABLE: _table,
    corpus.EVALUATION: _evaluation,
    corpus.SIMILARITY: _similarity,
    corpus.PROJECT: _project,
    corpus.INTERPRETER: _interpreter,
    corpus.PROGRAM: _program,
}
