"""What people and programs see, to the byte: the outputs in ``tests/golden``, made from the files in ``tests/data``.

``tests/golden_commands.txt`` has the command line of each. ``python -m tests.golden_outputs`` writes them again: read
the difference before you commit it. With names of outputs or their beginnings, it writes these only.

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
import re
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock
from xml.etree import ElementTree as ET

import nncftools
from nncftools.__main__ import main

FOLDER = Path(__file__).parent / "golden"
COMMANDS = Path(__file__).parent / "golden_commands.txt"
DATA = Path(__file__).parent / "data"
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
def _folder(line: str) -> Iterator[Path]:
    """Make a folder with the inputs that a line names, and what belongs beside them, the working folder."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        for path in _INPUTS:
            if re.split(r"[-.]", path.name)[0] in line:
                copy: Callable[..., object] = shutil.copytree if path.is_dir() else shutil.copy
                copy(path, Path(name, path.name))
        os.chdir(name)
        try:
            yield Path(name)
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


def _content(folder: Path) -> dict[str, bytes]:
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
            Path(target).write_bytes(_PICTURE)
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


def _alone(line: str, **look: Any) -> str:  # noqa: ANN401 — as ``command`` takes them
    """Return standard output, where nothing else may be."""
    result = command(line, **look)
    assert (result.status, result.err, result.files) == (0, "", {}), result
    return result.out


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


def _parquet(line: str) -> str:
    """Return the columns of a Parquet file with their types, and what is said about them."""
    (content,) = command(line).files.values()
    import pandas as pd

    frame = pd.read_parquet(io.BytesIO(content))
    values = frame.astype(object).where(frame.notna(), None)
    columns = {str(name): [str(frame[name].dtype), values[name].tolist()] for name in frame}
    return readable_json(json.dumps({"attrs": frame.attrs, "columns": columns}))


def _notebook(file: str) -> str:
    """Return what Python and a notebook show of a session, and its report."""
    with _folder(file), _environment():
        session = nncftools.Session.load(file)
        shown = (repr(session), re.sub("(base64,)[^)]*", r"\1", session._repr_markdown_()), session.report())
    return "\n\n".join(shown)


def _metrics(line: str) -> str:
    """Return the list of metrics; whether they can be recorded depends on the machine."""
    found = json.loads(command(line).out)
    for metric in found:
        del metric["missing"]
    return readable_json(json.dumps(found))


def _schema(line: str) -> str:
    """Return the schema, without what depends on releases: msgspec's order of types, Python 3.13's clean docstrings."""

    def normalised(of: dict[str, Any]) -> dict[str, Any]:
        if "anyOf" in of:
            of["anyOf"].sort(key=json.dumps)
        if isinstance(of.get("description"), str):
            of["description"] = inspect.cleandoc(of["description"])
        return of

    return f"{json.dumps(json.loads(command(line).out, object_hook=normalised), indent=1)}\n"


def _apart(line: str) -> str:
    """Return what shows a search or sweep that is in a folder; nothing runs again, and signals are as they were."""
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    try:
        text = _whole(command(line, draws=SHOWN))
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)
    return re.sub(r"^(Written to ).*/|^(Took ).*", r"\1\2…", text, flags=re.MULTILINE)


def _refusal(line: str) -> str:
    """Return what a command prints that is refused by one line, and writes nothing."""
    result = command(line)
    assert (result.err.count("\n"), result.files) == (1, {}), result
    return f"$ nncf-tools {line}\n{_whole(result)}"


MAKERS: dict[str, Callable[..., str]] = {
    "whole": lambda line, **look: _whole(command(line, **look)),
    "alone": _alone,
    "standard output": lambda line: command(line, draws=LEFT_OUT).out,
    "picture": lambda line: "".join(command(line, draws=SHOWN).pictures),
    "page": lambda line: page(command(line).out),
    "parquet": _parquet,
    "notebook": _notebook,
    "apart": _apart,
    "metrics": _metrics,
    "schema": _schema,
    "refused": _refusal,
}
"""By name: what makes an output from a command line. Those alone are nothing but standard output."""
LOOKS: dict[str, dict[str, Any]] = {
    "": {},
    "80 columns": {"columns": 80, "in_colour": False},
    "120 columns": {"columns": 120, "in_colour": False},
    "40 columns": {"columns": 40, "in_colour": False},
    "in colour": {"in_colour": True},
    "pictures shown": {"draws": SHOWN},
    "pictures left out": {"draws": LEFT_OUT},
}


def _read_commands() -> dict[str, list[Callable[[], str]]]:
    """Return what makes the parts of each golden output, by the name of its file."""
    outputs: dict[str, list[Callable[[], str]]] = {}
    maker = look = ""
    for line in COMMANDS.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            maker, _, look = line.strip("[]").partition(", ")
        elif line and not line.startswith("#"):
            name, _, words = line.partition(": ")
            outputs.setdefault(name, []).append(partial(MAKERS[maker], words, **LOOKS[look]))
    return outputs


OUTPUTS = _read_commands()
"""What makes the parts of each golden output, by the name of its file."""
STARTING = {"fit.txt", "fit.made_up.txt", "fit.made_up.json", "sweep.txt"}
"""Those that start processes."""


def make_output(name: str) -> str:
    """Return a golden output as it is today."""
    return "".join(make() for make in OUTPUTS[name])


def write(beginnings: tuple[str, ...]) -> None:
    """Write golden outputs; without beginnings of names all, and remove those that are no more."""
    FOLDER.mkdir(exist_ok=True)
    for name in OUTPUTS:
        if name.startswith(beginnings or ("",)):
            (FOLDER / name).write_bytes(make_output(name).encode())
    if not beginnings:
        for path in FOLDER.iterdir():
            if path.is_file() and path.name not in OUTPUTS:
                path.unlink()


if __name__ == "__main__":
    write(tuple(sys.argv[1:]))
