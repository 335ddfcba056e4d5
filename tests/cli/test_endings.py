"""The ending of --output decides what `report` and `compare` write; an ending that says nothing is refused."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

import pytest

from nncftools.render import view
from nncftools.session.model import Mark
from tests.conftest import Run
from tests.made_up import mib, rows, session
from tests.made_up_stacks import grown, stack

COMMANDS = {"report": ("report", "a.json"), "compare": ("compare", "a.json", "b.json")}
_PICTURES = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}
_PAGES = {".html": b"<!DOCTYPE html>", ".htm": b"<!DOCTYPE html>"}
BEGINS = {
    "report": {
        "": b"run: Peak memory",
        ".txt": b"run: Peak memory",
        ".md": b"###",
        ".json": b'{\n  "format": "nncf-tools-summary"',
        ".csv": b"time_s,",
        ".parquet": b"PAR1",
        **_PAGES,
        **_PICTURES,
    },
    "compare": {
        "": b"Peak memory rose",
        ".txt": b"Peak memory rose",
        ".md": b"**Peak memory rose",
        ".json": b'{\n  "format": "nncf-tools-comparison"',
        **_PAGES,
        **_PICTURES,
    },
}
"""By command: the first bytes of a file by its ending."""
SLOW = {".png", ".pdf", ".htm"}
WRITTEN = [
    pytest.param(command, ending, marks=[pytest.mark.long] if ending in SLOW else [])
    for command, endings in BEGINS.items()
    for ending in endings
]
NEWEST = "memory_logs/run/session.json"
LOG = "rss_memory_usage.txt"
NEVER = "no {} file holds the format {}; choose another ending"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Path:
    """Write two sessions, one with stacks."""
    marks = [Mark(name="Export", start_s=0.5, end_s=1.0)]
    session({"rss": mib(100, 300, 200)}, marks=marks).save(tmp_path / "a.json")
    session({"rss": mib(100, 400, 200)}, marks=marks).save(tmp_path / "b.json")
    grown((stack("/a/b.py:9 main"), 300)).save(tmp_path / "stacks.json")
    return tmp_path


def judge_refused(done: object, folder: Path, before: dict[str, bytes], message: str) -> None:
    """Check that a command ended with one line, and wrote nothing."""
    assert getattr(done, "returncode", None) == 2
    assert getattr(done, "stderr", None) == f"nncf-tools: error: {message}\n"
    assert content_of(folder) == before


def content_of(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("command, ending", WRITTEN)
def test_written(in_process: Run, folder: Path, command: str, ending: str) -> None:
    """The ending decides, in upper case too, and with .gz the file is packed."""
    packed = f"OUT{ending}.gz".upper()
    done = [in_process(*COMMANDS[command], "-o", name) for name in (f"out{ending}", packed)]
    plain = (folder / f"out{ending}").read_bytes()
    unpacked = gzip.decompress((folder / packed).read_bytes())

    assert [(of.returncode, of.stdout) for of in done] == [(0, ""), (0, "")]
    assert plain.startswith(BEGINS[command][ending])
    assert unpacked.startswith(BEGINS[command][ending])


@pytest.mark.parametrize("ending", view.ENDINGS)
@pytest.mark.parametrize("format_", view.FORMATS)
def test_format_and_ending(in_process: Run, folder: Path, format_: str, ending: str) -> None:
    """A format is refused only where it never has this ending; here, the file exists, which is looked at later."""
    name = f"out{ending}"
    (folder / name).touch()
    message = f"{name!r} exists; choose another name or give --force"
    if format_ not in view.ENDINGS[ending]:
        message = NEVER.format(ending, format_)
    before = content_of(folder)
    done = in_process("report stacks.json -o", name, "-f", format_)
    judge_refused(done, folder, before, f"option --output: {message}")


REFUSED = """
compare a.json b.json -f bencher -o x.svg | --output: no .svg file holds the format bencher; choose another ending
compare a.json b.json -o b.json --force | --output: this command also reads or writes 'b.json'; choose another name
compare a.json b.json -o link.html | --output: 'link.html' is a link to 'elsewhere'; name that file
report a.json -o ./a.json --force | --output: this command also reads or writes 'a.json'; choose another name
report a.json -o link.json --force | --output: this command also reads or writes 'link.json'; choose another name
report a.json -o ops.csv --marks ops.csv --force \
| --output: this command also reads or writes 'ops.csv'; choose another name
report a.json -o x.svg --plot x.svg | --plot: this command also reads or writes 'x.svg'; choose another name
report a.json -o x.txt --plot x.tif | --plot: 'x.tif' does not end in one of .png, .svg, .pdf
report a.json -o x.txt --panels old.png | --panels: 'old.png' exists; choose another name or give --force
report a.json --plot link.png | --plot: 'link.png' exists; choose another name or give --force
report a.json -f memory-log -o logs.json | --output: no .json file holds the format memory-log; choose another ending
report a.json --open -o x.txt | --output: no .txt file holds the format html; choose another ending
report a.json --open -f text | --open: opens the HTML page, so not with --format text
report a.json --peak -o x.html \
| --peak: only with --format text, markdown or json, or an --output that ends in .txt, .md or .json
report a.json -f SVG | --format: svg is a picture format; use --output FILE.svg
report a.json -o logs | --output: 'logs' is a folder; a file name expected
report -o memory_logs/run/session.json --force \
| --output: this command also reads or writes 'memory_logs/run/session.json'; choose another name
report rss_memory_usage.txt -f memory-log -o . --force \
| --output: this command also reads or writes 'rss_memory_usage.txt'; choose another name
"""


@pytest.mark.parametrize("words, message", rows(REFUSED))
def test_refused(in_process: Run, folder: Path, words: str, message: str) -> None:
    """All files are checked before one is written, and no recording is replaced by its report."""
    (folder / "link.json").symlink_to("a.json")
    (folder / "link.html").symlink_to("elsewhere")
    (folder / "logs").mkdir()
    (folder / "ops.csv").write_text("name,start_s,end_s\nLoad,0,1\n")
    (folder / "old.png").write_text("precious")
    (folder / "link.png").symlink_to("old.png")
    (folder / NEWEST).parent.mkdir(parents=True)
    session().save(folder / NEWEST)
    shutil.copy(Path(__file__).parents[1] / "data/runs/logs/io.txt", folder / LOG)
    before = content_of(folder)
    judge_refused(in_process(words), folder, before, f"option {message}")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["pipe", "pipe.html", "pipe.xyz"])
def test_streams_get_text(in_process: Run, folder: Path, command: str, name: str) -> None:
    """The name of a FIFO says nothing: it gets text, or the format that was asked for."""
    os.mkfifo(folder / name)
    reader = os.open(folder / name, os.O_RDONLY | os.O_NONBLOCK)
    by_default = in_process(*COMMANDS[command], "-o", name)
    text = os.read(reader, 1 << 16)
    asked = in_process(*COMMANDS[command], "-o", name, "-f", "json")
    json = os.read(reader, 1 << 16)
    os.close(reader)

    assert (by_default.returncode, asked.returncode) == (0, 0)
    assert text.startswith(BEGINS[command][""])
    assert json.startswith(b"{")


def test_nothing_in_common_to_draw(in_process: Run, folder: Path) -> None:
    """A picture that cannot be drawn is noticed before the other file is written."""
    session({"rss": mib(100, 400), "system": mib(100, 400)}).save(folder / "both.json")
    session({"system": mib(100, 400)}).save(folder / "c.json")
    done = in_process("compare both.json a.json c.json -o x.md --plot x.svg")

    assert (done.returncode, (folder / "x.md").exists(), (folder / "x.svg").exists()) == (1, False, False)
    assert done.stderr == "nncf-tools: error: option --plot: the runs have no memory metric in common to draw\n"
