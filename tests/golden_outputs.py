"""What people and programs see, to the byte: the outputs in ``tests/golden``, made from the files in ``tests/data``.

``python -m tests.golden_outputs`` writes them again: read the difference before you commit it. With names of outputs or
their beginnings, it writes these only.

Everything is made by the command line or by public names, never by modules of the package, so that code can move and
its goldens stay. What mistakes print is in ``docs/limits-and-mistakes.md``.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import inspect
import io
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from unittest import mock
from xml.etree import ElementTree as ET

import nncftools
from nncftools.__main__ import main

FOLDER = pathlib.Path(__file__).parent / "golden"
DATA = pathlib.Path(__file__).parent / "data"
ROOT = DATA.parents[1]
_INPUTS = (
    *(DATA / "runs").iterdir(),
    *(DATA / "version_1").glob("*.*"),
    *(ROOT / "examples" / "compression").glob("*.csv"),
    DATA / "made_up_compression.csv",
)
_ENVIRONMENT = {
    "COLUMNS": "80",
    "LINES": "24",
    "NO_COLOR": "1",
    "TERM": "xterm-256color",
    "COLORTERM": "truecolor",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "OPENBLAS_NUM_THREADS": "1",  # commands set it
    "SOURCE_DATE_EPOCH": "0",  # of Matplotlib's files
}
SHOWN, LEFT_OUT = "shown", "left out"
_PICTURE = b"a picture\n"


@dataclass(frozen=True)
class Result:
    """What a command line did."""

    status: int
    out: str
    err: str
    files: Mapping[str, bytes] = field(default_factory=dict)
    """What it wrote, by name."""
    pictures: tuple[str, ...] = ()
    """The pictures that it drew, each as lines of text."""


def command(line: str, *, columns: int = 80, in_colour: bool | None = None, draws: str = "") -> Result:
    """Run a command line in this process, in a folder with copies of the inputs that it names.

    With ``in_colour``, standard output is a terminal. With ``draws``, pictures are not written: SHOWN, the result has
    them, or LEFT_OUT.
    """
    drawn = _drawn(draws) if draws else contextlib.nullcontext([])
    with _folder(line) as folder, _environment(columns, in_colour=in_colour), drawn as pictures:
        before = _content(folder)
        streams = [_Stream(is_terminal=in_colour is not None) for _ in range(2)]
        with (
            contextlib.redirect_stdout(streams[0]),
            contextlib.redirect_stderr(streams[1]),
            mock.patch("sys.argv", ["nncf-tools", *shlex.split(line)]),
            mock.patch("gc.freeze"),  # it is for the end of a process
            mock.patch("gc.set_threshold"),
        ):
            try:
                main()
            except SystemExit as end:
                status = int(end.code or 0)
        out, err = (stream.text() for stream in streams)
        after = _content(folder)
    files = {name: content for name, content in after.items() if before.get(name) != content}
    return Result(status, out, err, files, tuple(pictures))


class _Stream(io.TextIOWrapper):
    """A standard stream, which keeps what is written."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    def text(self) -> str:
        kept = self.buffer
        assert isinstance(kept, io.BytesIO)
        return kept.getvalue().decode()


@contextlib.contextmanager
def _folder(line: str) -> Iterator[pathlib.Path]:
    """Make a folder with the inputs that a line names, and what belongs beside them, the working folder."""
    before = pathlib.Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        for path in _INPUTS:
            if re.split(r"[-.]", path.name)[0] in line:
                copy: Callable[..., object] = shutil.copytree if path.is_dir() else shutil.copy
                copy(path, pathlib.Path(name, path.name))
        os.chdir(name)
        try:
            yield pathlib.Path(name)
        finally:
            os.chdir(before)


@contextlib.contextmanager
def _environment(columns: int = 80, *, in_colour: bool | None = None) -> Iterator[None]:
    """Set everything that outputs depend on, and nothing else of ours."""
    unwanted = ("NNCF_TOOLS_", "LC_", "FORCE_COLOR", "CLICOLOR", "TTY_", "RANK", "WORLD_SIZE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    wanted = {**kept, **_ENVIRONMENT, "COLUMNS": str(columns)}
    if in_colour:
        del wanted["NO_COLOR"]
    try:
        with mock.patch.dict(os.environ, wanted, clear=True):
            time.tzset()
            yield
    finally:
        time.tzset()


def _content(folder: pathlib.Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@contextlib.contextmanager
def _drawn(draws: str) -> Iterator[list[str]]:
    """Keep what figures of Matplotlib show, in place of the files that they write."""
    from matplotlib.figure import Figure

    found: list[str] = []
    save = Figure.savefig

    def savefig(figure: Figure, target: Any, **_: Any) -> None:  # noqa: ANN401 — as Matplotlib takes them
        if draws == SHOWN:
            drawn = io.BytesIO()
            save(figure, drawn, format="svg", metadata={"Date": None})
            found.append(_lines_of(drawn.getvalue()))
        if isinstance(target, str | os.PathLike):
            pathlib.Path(target).write_bytes(_PICTURE)
        else:
            target.write(_PICTURE)

    with _style(), mock.patch.object(Figure, "savefig", savefig):
        yield found


def _style() -> contextlib.AbstractContextManager[None]:
    from matplotlib import rc_context

    return rc_context({"svg.fonttype": "none", "svg.hashsalt": "golden"})


def _lines_of(svg: bytes) -> str:
    """Return a picture as lines: each text and each shape with its place, in points, and its look."""
    lines = [f"Matplotlib {matplotlib_release()}\n"]
    for element in ET.fromstring(svg).iter():  # noqa: S314 — drawn by Matplotlib
        kind = element.tag.rpartition("}")[2]
        given = {name.rpartition("}")[2]: _short(value) for name, value in element.attrib.items()}
        style = re.sub(r" ?font-family: [^;]*;", "", given.get("style", ""))
        if kind == "text":
            lines.append(f"text {element.text!r} at {_place(given)}: {style}\n")
        elif kind == "path" and "d" in given:
            lines.append(f"path {given['d']}: {style}\n")
        elif kind == "use":
            lines.append(f"use {given['href']} at {_place(given)}: {style}\n")
        elif kind == "image":
            lines.append(f"image at {_place(given)}\n")
    return "".join(lines)


def _place(given: Mapping[str, str]) -> str:
    return given.get("transform") or f"{given.get('x')} {given.get('y')}"


def _short(value: str) -> str:
    """Return an attribute of SVG with its numbers rounded."""
    return " ".join(re.sub(r"-?\d+\.\d+", lambda found: f"{float(found[0]):.1f}", value).split())


def matplotlib_release() -> str:
    """Return the release of Matplotlib, such as 3.11: another one places texts elsewhere."""
    return ".".join(importlib.metadata.version("matplotlib").split(".")[:2])


def texts_of(lines: str) -> list[str]:
    """Return the texts of a picture's lines, sorted."""
    return sorted(re.findall(r"^text (.*) at ", lines, re.MULTILINE))


# What a golden file holds


def _whole(result: Result) -> str:
    """Return all that a command did, each part under a heading; standard output alone is as it is.

    Of pictures there are only the texts, which are the same with each release of Matplotlib.
    """
    parts = [result.out]
    if result.err:
        parts.append(f"=== standard error\n{result.err}")
    if result.status:
        parts.append(f"=== exit status {result.status}\n")
    parts += [f"=== {name}\n{_readable(content)}" for name, content in result.files.items()]
    for number, lines in enumerate(result.pictures, 1):
        parts.append("\n".join([f"=== texts of picture {number}", *texts_of(lines), ""]))
    return "".join(parts)


def _readable(content: bytes) -> str:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return f"{len(content)} bytes\n"
    return text if text.endswith("\n") else f"{text}\n"


def _told(line: str, **how: Any) -> Callable[[], str]:  # noqa: ANN401 — as ``command`` takes them
    return lambda: _whole(command(line, **how))


def _alone(line: str, **how: Any) -> Callable[[], str]:  # noqa: ANN401 — the same
    """Return what makes standard output, where nothing else may be."""

    def make() -> str:
        result = command(line, **how)
        assert (result.status, result.err, result.files) == (0, "", {}), result
        return result.out

    return make


def _picture(line: str) -> Callable[[], str]:
    """Return what makes the lines of the only picture."""
    return lambda: "".join(command(line, draws=SHOWN).pictures)


def page(text: str) -> str:
    """Return what a page shows, and its data: without its programs and its look, a line for each part."""
    start = text.index("<body>")
    body = re.sub(r"<script.*?</script>\n?", "", text[start:], flags=re.DOTALL)
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    figures = {name: of for name, of in json.loads(found[1]).items() if name != "look"}
    return re.sub("(?=<(tr|p|dt|li)[ >])", "\n", body) + readable_json(json.dumps(figures))


def readable_json(text: str) -> str:
    """Return JSON in lines, with arrays of numbers and texts in one line each."""
    indented = json.dumps(json.loads(text), indent=1, ensure_ascii=False)
    return re.sub(r"\[[^][{}]*\]", lambda found: re.sub(r"\n\s*", " ", found[0]), indented) + "\n"


def _page(files: str, more: str = "--depth 2") -> Callable[[], str]:
    return lambda: page(command(f"report {files} -f html {more}").out)


def _parquet(file: str) -> str:
    """Return the columns of a Parquet file with their types, and what is said about them."""
    result = command(f"report {file} -f parquet -o out.parquet")
    import pandas as pd

    frame = pd.read_parquet(io.BytesIO(result.files["out.parquet"]))
    values = frame.astype(object).where(frame.notna(), None)
    columns = {str(name): [str(frame[name].dtype), values[name].tolist()] for name in frame}
    return readable_json(json.dumps({"attrs": frame.attrs, "columns": columns}))


def _notebook(file: str) -> str:
    """Return what Python and a notebook show of a session, and its report."""
    with _folder(file), _environment():
        session = nncftools.Session.load(file)
        shown = (repr(session), re.sub("(base64,)[^)]*", r"\1", session._repr_markdown_()), session.report())
    return "\n\n".join(shown)


def _metrics() -> str:
    """Return the list of metrics; whether they can be recorded depends on the machine."""
    found = json.loads(command("metrics --json").out)
    for metric in found:
        del metric["missing"]
    return readable_json(json.dumps(found))


def _schema() -> str:
    """Return the schema, without what depends on releases: msgspec's order of types, Python 3.13's clean docstrings."""

    def normalised(of: dict[str, Any]) -> dict[str, Any]:
        if "anyOf" in of:
            of["anyOf"].sort(key=json.dumps)
        if isinstance(of.get("description"), str):
            of["description"] = inspect.cleandoc(of["description"])
        return of

    return f"{json.dumps(json.loads(command('schema').out, object_hook=normalised), indent=1)}\n"


def _apart(make: Callable[[], str]) -> Callable[[], str]:
    """Return what makes an output and leaves signals as they were: searches and sweeps change them."""

    def made() -> str:
        before = {number: signal.getsignal(number) for number in signal.valid_signals()}
        try:
            return make()
        finally:
            for number, handler in before.items():
                if signal.getsignal(number) is not handler:
                    signal.signal(number, handler)

    return made


def _fits() -> str:
    """Return what shows the searches that are in folders; nothing runs again."""
    lines = (
        "fit --resume --free-only -o fit -- python -S -E needs.py",
        "fit --resume --free-only -o fit_of_made_up -u GiB -- python 'export $x.py'",
        "fit --resume --free-only -o fit_of_made_up --json -- python 'export $x.py'",
    )
    text = "".join(f"=== nncf-tools {line}\n{_whole(command(line, draws=SHOWN))}" for line in lines)
    return re.sub(r"^(Written to ).*/", r"\1FOLDER/", text, flags=re.MULTILINE)


def _sweep(words: str) -> Callable[[], str]:
    """Return what shows the sweep that is in a folder; nothing runs again."""
    texts = "--text sweep/text.txt --calibration sweep/calibration.txt --grid sweep/grid.toml"
    line = f"sweep --model sweep/model -o sweep/results.csv {texts} --python sweep/python --resume {words}"
    return lambda: re.sub(r"^Took .*", "Took TIME", _whole(command(line, draws=SHOWN)), flags=re.MULTILINE)


_ENDINGS = {
    "text": "txt",
    "markdown": "md",
    "json": "json",
    "csv": "csv",
    "terminal": "chart.txt",
    "perfetto": "perfetto.json",
    "bencher": "bencher.json",
    "benchmark-action": "benchmark-action.json",
    "session": "session.json",
}
_EXPORT = "export.json -t rss,system --depth 2"
_SESSIONS = {
    **{
        name: f"{name}.json --depth 3"
        for name in (
            *("recorded", "parallel", "stacks", "built_up", "hostile"),
            *("died_of_limit", "died_of_disk", "died_of_address_space", "died_of_signal"),
            *("no_samples", "no_metrics", "unknown", "marked"),
            *("operations", "odd_stacks", "attached"),
        )
    },
    "facts": "facts.json -t all --depth 2",
    "long": "long.json.gz",
    "monitored": "monitored.json.gz",
    "killed": "killed.journal.jsonl",
    "unfinished": "unfinished.journal.jsonl --depth 2",
    "complete": "complete.journal.jsonl",
    "job": "job-rank0.json job-rank1.json job-rank2.json --depth 2",
    "pair": "rank-rank0.json rank-rank1.json",
    "rank": "job-rank1.json",
}
"""Recordings of every kind, as ``report`` is asked for them."""
_PEAK_OF = {
    "recorded": "recorded.json",
    "recorded.operation": "recorded.json --operation Calibration",
    "recorded.at": "recorded.json --at 0.9",
    "recorded.end": "recorded.json --at end",
    "parallel": "parallel.json",
    "stacks": "stacks.json",
    "built_up": "built_up.json",
    "built_up.second": "built_up.json --operation 'Trace (2)'",
    "odd_stacks": "odd_stacks.json",
    "odd_stacks.step": "odd_stacks.json --operation Step",
    "odd_stacks.growth": "odd_stacks.json --from 1 --to 8",
    "unfinished": "unfinished.journal.jsonl",
}
_GATES = (
    "--fail-if 'peak_rss>+5%' --fail-if 'duration>90s' --fail-if 'peak_rss@Export>3GiB' --fail-if 'cpu@Export<1s' "
    "--fail-if 'write_bytes>-10MiB'"
)
_COMPARISONS = {
    "two": f"base-1.json new-1.json {_GATES}",
    "details": "base-1.json new-1.json --details --depth 2 -u GB",
    "three": "base-1.json base-2.json new-1.json",
    "groups": f"--base 'base-*.json' --new 'new-*.json' {_GATES}",
    "others": "recorded.json parallel.json --depth 2",
    "functions": "built_up.json built_up_more.json --details --fail-if 'peak_rss@trace>+1MiB'",
    "died": "died_of_limit.json killed.journal.jsonl",
    "odd": "odd_before.json odd_after.json --fail-if 'peak_rss@Epoch (1)>+1MiB' --fail-if 'peak_rss@Epoch>+1MiB'",
    "odd.details": "odd_before.json odd_after.json --details",
    "one_side": "died_of_limit.json odd_stacks.json --details",
}
_VIEWS = {"80": {"columns": 80}, "120": {"columns": 120}, "40": {"columns": 40}}
_VIZ = {
    "standard": "-i made_up_compression.csv",
    "measured": "-i measured.csv --recommend 'error<=5%, peak<=8GiB' --also peak --also latency --extra --lenient",
    "smollm2": "-i smollm2.csv --max-error 30% --metric 'held-out text, perplexity:lower' --lenient --extra",
}


def _formats() -> Iterator[tuple[str, Callable[[], str]]]:
    for name, ending in _ENDINGS.items():
        yield f"report.{ending}", _alone(f"report {_EXPORT} --details -f {name}")
    yield "report.from-zero.txt", _told("report export.json --details --from-zero -u GB --title 'another $title'")
    yield "report.all-types.txt", _told("report monitored.json.gz --details -t all -u KiB")
    yield "report.marks.txt", _told("report export.json --marks more.csv --depth 2 --details")
    yield "report.memory-log.txt", _told("report export.json -f memory-log -o log", draws=LEFT_OUT)
    yield "report.parquet.json", lambda: _parquet("export.json")
    yield "report.facts.parquet.json", lambda: _parquet("facts.json")
    for name in ("odd_before", "facts"):
        yield f"report.{name}.bencher.json", _alone(f"report {name}.json -f bencher")
    yield "report.facts.csv", _alone("report facts.json -f csv")
    yield (
        "report.facts.memory-log.txt",
        _told("report facts.json -t rss,pss --from-zero -u GiB -f memory-log -o log", draws=LEFT_OUT),
    )
    yield "report.log.txt", _told("report logs/io.txt --details")
    yield "report.output.txt", _told("report no_samples.json -f csv -o out.csv")


def _kinds() -> Iterator[tuple[str, Callable[[], str]]]:
    for name, files in _SESSIONS.items():
        for of, ending in (("text", "txt"), ("markdown", "md"), ("json", "json")):
            yield f"report.{name}.{ending}", _told(f"report {files} --details -f {of}")
    for name in ("parallel", "job", "recorded", "operations", "facts", "odd_stacks", "unknown", "attached"):
        yield f"report.{name}.perfetto.json", _told(f"report {_SESSIONS[name]} -f perfetto")
    for name in ("recorded", "stacks", "built_up", "odd_stacks"):
        for ending in ("collapsed", "speedscope"):
            yield f"report.{name}.{ending}.txt", _told(f"report {_SESSIONS[name]} -f {ending}")
    for name in ("long", "job", "hostile", "no_samples", "unfinished", "operations", "facts"):
        yield f"report.{name}.chart.txt", _told(f"report {_SESSIONS[name]} -f terminal")
    for name in ("unfinished", "complete", "died_of_limit"):
        yield f"report.{name}.session.json", _told(f"report {_SESSIONS[name].partition(' ')[0]} -f session")


def _screens() -> Iterator[tuple[str, Callable[[], str]]]:
    for name, how in _VIEWS.items():
        yield f"report.{name}-columns.txt", _told(f"report {_EXPORT} --details", in_colour=False, **how)
        yield f"report.brief.{name}-columns.txt", _told("report parallel.json", in_colour=False, **how)
        yield f"report.{name}-columns.chart.txt", _told(f"report {_EXPORT} -f terminal", in_colour=False, **how)
        yield (
            f"report.parallel.{name}-columns.txt",
            _told("report parallel.json --depth 2 --details", in_colour=False, **how),
        )
    yield "report.colour.txt", _told(f"report {_EXPORT} --details", in_colour=True)
    yield "report.colour.chart.txt", _told(f"report {_EXPORT} -f terminal", in_colour=True)
    yield "report.died.colour.txt", _told("report died_of_limit.json --details", in_colour=True)
    yield "report.brief.died.txt", _told("report died_of_limit.json")
    yield "report.brief.facts.txt", _told("report facts.json -t rss,pss,shmem,system")
    yield "report.brief.txt", _told("report no_samples.json")
    yield "report.brief.job.txt", _told(f"report {_SESSIONS['job']}")


def _peaks() -> Iterator[tuple[str, Callable[[], str]]]:
    for name, files in _PEAK_OF.items():
        yield f"peak.{name}.txt", _told(f"report {files} --peak")
        yield f"peak.{name}.md", _told(f"report {files} --peak -f markdown")
    for name in ("recorded", "recorded.end", "parallel", "built_up", "odd_stacks"):
        yield f"peak.{name}.json", _told(f"report {_PEAK_OF[name]} --peak -f json")
    yield "peak.colour.txt", _told("report built_up.json --peak", in_colour=True)
    yield "peak.none.txt", _told("report export.json --peak")


def _pages() -> Iterator[tuple[str, Callable[[], str]]]:
    yield "page.export.html", _page(_EXPORT, "")
    of_pages = (
        "parallel",
        "recorded",
        "built_up",
        "job",
        "hostile",
        "died_of_limit",
        "operations",
        "facts",
        "odd_stacks",
    )
    for name in (*of_pages, "no_samples"):
        yield f"page.{name}.html", _page(_SESSIONS[name], "")
    yield "notebook.recorded.md", lambda: _notebook("recorded.json")
    yield "notebook.died_of_limit.md", lambda: _notebook("died_of_limit.json")


def _pictures() -> Iterator[tuple[str, Callable[[], str]]]:
    yield "plot.picture.txt", _picture(f"report {_EXPORT} --plot run.svg")
    yield "plot.facts.picture.txt", _picture("report facts.json -t rss,device_allocated --plot run.svg")
    yield "panels.picture.txt", _picture("report parallel.json --depth 2 --panels run.svg")
    yield "plot.job.picture.txt", _picture(f"report {_SESSIONS['job']} --plot run.svg")
    yield "panels.facts.picture.txt", _picture("report facts.json --panels run.svg")
    yield "panels.from-zero.picture.txt", _picture("report export.json --from-zero --panels run.svg")
    yield "panels.no_samples.picture.txt", _picture("report no_samples.json --panels run.svg")
    yield "panels.operations.picture.txt", _picture("report operations.json --depth 3 --panels run.svg")
    yield "overlay.picture.txt", _picture("compare base-1.json new-1.json --plot overlay.svg")
    yield "viz.picture.txt", _picture(f"viz-compression {_VIZ['measured']} -f svg -o out")


def _comparisons() -> Iterator[tuple[str, Callable[[], str]]]:
    for name, words in _COMPARISONS.items():
        for of, ending in (("text", "txt"), ("markdown", "md"), ("json", "json")):
            yield f"compare.{name}.{ending}", _told(f"compare {words} -f {of}")
    for of in ("bencher", "benchmark-action"):
        yield f"compare.{of}.json", _told(f"compare --base 'base-*.json' --new 'new-*.json' -f {of}")
    for name, how in _VIEWS.items():
        yield f"compare.{name}-columns.txt", _told("compare base-1.json new-1.json", in_colour=False, **how)
    yield "compare.hostile.html", _told("compare base-1.json hostile.json -f html")
    yield "compare.colour.txt", _told(f"compare base-1.json new-1.json {_GATES} --details", in_colour=True)


def _logs() -> Iterator[tuple[str, Callable[[], str]]]:
    for path in sorted((DATA / "runs" / "logs").iterdir()):
        yield f"log.{path.name}.session.json", _told(f"report logs/{path.name} -f session")


def _tables() -> Iterator[tuple[str, Callable[[], str]]]:
    for name, words in _VIZ.items():
        yield f"viz.{name}.txt", _told(f"viz-compression {words} -f html -o out", draws=SHOWN)
        yield f"viz.{name}.json", _told(f"viz-compression {words} --json -o out", draws=LEFT_OUT)
        yield f"viz.{name}.terminal.txt", _terminal(f"viz-compression {words} --terminal -o out")
    sweep = "-i smollm2_sweep.csv --extra --lenient --metric 'held-out text, word perplexity:lower'"
    yield "viz.sweep.txt", _told(f"viz-compression {sweep} --recommend 'error<=10%' -o out", draws=SHOWN)
    row = "results.json -o data.csv --model made-up --mode fp32 --task mmlu:acc --wwb metrics.csv"
    yield "from-lm-eval.txt", _told(f"from-lm-eval {row}")
    yield "fit.txt", _apart(_fits)
    yield "sweep.txt", _apart(_sweep("--recommend 'error<=30%'"))
    yield "sweep.dry.txt", _sweep("--dry-run")


def _terminal(line: str) -> Callable[[], str]:
    """Return what makes what a command prints, without the files that it writes."""
    return lambda: command(line, draws=LEFT_OUT).out


def _others() -> Iterator[tuple[str, Callable[[], str]]]:
    yield "metrics.json", _metrics
    yield "schema.json", _schema
    yield "help.txt", _alone("--help")
    for name, how in _VIEWS.items():
        yield f"help.{name}-columns.txt", _alone("monitor --help", **how)
    yield "help.colour.txt", _alone("monitor --help", in_colour=True)
    yield "mistake.no-stacks.txt", _told("report export.json -f collapsed")


OUTPUTS = dict(
    output
    for group in (_formats, _kinds, _screens, _peaks, _pages, _pictures, _comparisons, _logs, _tables, _others)
    for output in group()
)
"""What makes each golden output, by the name of its file."""
STARTING = {"fit.txt", "sweep.txt"}
"""Those that start processes."""


def write(beginnings: tuple[str, ...]) -> None:
    """Write golden outputs; without beginnings of names all, and remove those that are no more."""
    FOLDER.mkdir(exist_ok=True)
    for name, make in OUTPUTS.items():
        if name.startswith(beginnings or ("",)):
            (FOLDER / name).write_bytes(make().encode())
    if not beginnings:
        for path in FOLDER.iterdir():
            if path.is_file() and path.name not in OUTPUTS:
                path.unlink()


if __name__ == "__main__":
    write(tuple(sys.argv[1:]))
