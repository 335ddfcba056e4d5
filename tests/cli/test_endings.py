"""The ending of --output decides what `report` and `compare` write; an ending that says nothing is refused."""

from __future__ import annotations

import gzip
import os
import pathlib

import pytest

from nncftools.render import view
from nncftools.session.model import Mark
from tests.conftest import Run
from tests.made_up import mib, session
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
TAKEN = {
    "report": ".txt, .md, .html, .htm, .json, .csv, .parquet, .png, .svg, .pdf",
    "compare": ".txt, .md, .html, .htm, .json, .png, .svg, .pdf",
}
PEAK = "--peak: only with --format text, markdown or json, or an --output that ends in .txt, .md or .json"
OTHER_NAME = "this command also reads or writes {!r}; choose another name"
ONE_OF = "{!r} does not end in one of {}; change the name, or add --format"
NEVER = "no {} file holds the format {}; choose another ending"
OF_JSON = ("session", "perfetto", "speedscope", "bencher", "benchmark-action")
"""Formats whose files end as those of the summary do."""


@pytest.fixture(autouse=True)
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """Write two sessions, one with stacks."""
    marks = [Mark(name="Export", start_s=0.5, end_s=1.0)]
    session({"rss": mib(100, 300, 200)}, marks=marks).save(tmp_path / "a.json")
    session({"rss": mib(100, 400, 200)}, marks=marks).save(tmp_path / "b.json")
    grown((stack("/a/b.py:9 main"), 300)).save(tmp_path / "stacks.json")
    return tmp_path


def judge_refused(done: object, folder: pathlib.Path, before: dict[str, bytes], message: str) -> None:
    """Check that a command ended with one line, and wrote nothing."""
    assert getattr(done, "returncode", None) == 2
    assert getattr(done, "stderr", None) == f"nncf-tools: error: {message}\n"
    assert content_of(folder) == before


def content_of(folder: pathlib.Path) -> dict[str, bytes]:
    """Return the files of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize(("command", "ending"), WRITTEN)
def test_written(in_process: Run, folder: pathlib.Path, command: str, ending: str) -> None:
    """The ending decides, in upper case too, and with .gz the file is packed."""
    packed = f"OUT{ending}.gz".upper()
    done = [in_process(*COMMANDS[command], "-o", name) for name in (f"out{ending}", packed)]
    plain = (folder / f"out{ending}").read_bytes()
    unpacked = gzip.decompress((folder / packed).read_bytes())

    assert [(of.returncode, of.stdout) for of in done] == [(0, ""), (0, "")]
    assert plain.startswith(BEGINS[command][ending])
    assert unpacked.startswith(BEGINS[command][ending])


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["x.xyz", "x.htlm", "x.html.gz.gz", "run-0.5", "x.prom"])
def test_unknown_ending(in_process: Run, folder: pathlib.Path, command: str, name: str) -> None:
    """An ending that says no format is refused, with those that do; with --format, it is the user's business."""
    before = content_of(folder)
    refused = in_process(*COMMANDS[command], "-o", name)
    judge_refused(refused, folder, before, "option --output: " + ONE_OF.format(name, TAKEN[command]))

    assert in_process(*COMMANDS[command], "-o", name, "-f", "text").returncode == 0


@pytest.mark.parametrize("name", ["x.csv", "x.parquet", "x.CSV.gz"])
def test_ending_of_another_command(in_process: Run, folder: pathlib.Path, name: str) -> None:
    """`compare` has no table of samples."""
    refused = in_process(*COMMANDS["compare"], "-o", name)

    assert refused.stderr.startswith(f"nncf-tools: error: option --output: {name!r} does not end in one of .txt, ")
    assert not (folder / name).exists()


@pytest.mark.parametrize("ending", view.ENDINGS)
@pytest.mark.parametrize("format_", view.FORMATS)
def test_format_and_ending(in_process: Run, folder: pathlib.Path, format_: str, ending: str) -> None:
    """A format is refused only where it never has this ending."""
    before = content_of(folder)
    name = f"out{ending}"
    done = in_process("report", "stacks.json", "-o", name, "-f", format_)
    if format_ in view.ENDINGS[ending]:
        assert (done.returncode, done.stderr) == (0, f"Written to {name}\n")
        return
    judge_refused(done, folder, before, "option --output: " + NEVER.format(ending, format_))


def test_every_format_has_an_ending() -> None:
    """Each format has an ending, but the one that makes a folder."""
    held = {name for formats in view.ENDINGS.values() for name in formats}

    assert held == {view.PICTURE, *view.FORMATS} - {"memory-log"}
    assert set(OF_JSON) < set(view.ENDINGS[".json"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-f", "markdown", "-o", "x.html"), NEVER.format(".html", "markdown")),
        (("-f", "html", "-o", "x.json"), NEVER.format(".json", "html")),
        (("-f", "bencher", "-o", "x.svg"), NEVER.format(".svg", "bencher")),
        (("-o", "a.json", "--force"), OTHER_NAME.format("a.json")),
        (("-o", "b.json", "--force"), OTHER_NAME.format("b.json")),
        (("-o", "link.html"), "'link.html' is a link to 'elsewhere'; name that file"),
    ],
)
def test_compare_refuses(in_process: Run, folder: pathlib.Path, words: tuple[str, ...], message: str) -> None:
    """Of `compare`: a wrong ending, a recording that would be replaced, and a link that hides the ending."""
    (folder / "link.html").symlink_to("elsewhere")
    before = content_of(folder)
    judge_refused(in_process(*COMMANDS["compare"], *words), folder, before, f"option --output: {message}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-o", "a.json", "--force"), "--output: " + OTHER_NAME.format("a.json")),
        (("-o", "./a.json", "--force"), "--output: " + OTHER_NAME.format("a.json")),
        (("-o", "link.json", "--force"), "--output: " + OTHER_NAME.format("link.json")),
        (("-o", "ops.csv", "--marks", "ops.csv", "--force"), "--output: " + OTHER_NAME.format("ops.csv")),
        (("-o", "x.svg", "--plot", "x.svg"), "--plot: " + OTHER_NAME.format("x.svg")),
        (("-o", "x.txt", "--plot", "x.tif"), "--plot: 'x.tif' does not end in one of .png, .svg, .pdf"),
        (("-o", "x.txt", "--panels", "old.png"), "--panels: 'old.png' exists; choose another name or give --force"),
        (("-o", "x.xyz", "--plot", "x.png"), "--output: " + ONE_OF.format("x.xyz", TAKEN["report"])),
        (("-f", "memory-log", "-o", "logs.json"), "--output: " + NEVER.format(".json", "memory-log")),
        (("--open", "-o", "x.txt"), "--output: " + NEVER.format(".txt", "html")),
        (("--open", "-f", "text"), "--open: it opens the page; not with --format text"),
        (("--peak", "-o", "x.html"), PEAK),
        (("-f", "SVG"), "--format: svg is a picture format; use --output FILE.svg"),
        (("-o", "logs"), "--output: 'logs' is a folder; a file name expected"),
    ],
)  # fmt: skip
def test_report_refuses(in_process: Run, folder: pathlib.Path, words: tuple[str, ...], message: str) -> None:
    """All files are checked before one is written, and no recording is replaced by its report."""
    (folder / "link.json").symlink_to("a.json")
    (folder / "logs").mkdir()
    (folder / "ops.csv").write_text("name,start_s,end_s\nLoad,0,1\n")
    (folder / "old.png").write_text("precious")
    before = content_of(folder)
    judge_refused(in_process("report", "a.json", *words), folder, before, f"option {message}")


def test_own_recording_by_its_word(in_process: Run, folder: pathlib.Path) -> None:
    """The newest recording, and a log in the folder that is written to, are not replaced either."""
    logs = folder / "memory_logs" / "run"
    logs.mkdir(parents=True)
    (folder / "a.json").rename(logs / "session.json")
    log = folder / "rss_memory_usage.txt"
    assert in_process("report", "-f", "memory-log", "-o", ".", "-t", "rss").returncode == 0
    before = (logs / "session.json").read_bytes(), log.read_bytes()
    results = [
        in_process("report", "-o", "memory_logs/run/session.json", "--force"),
        in_process("report", log, "-f", "memory-log", "-o", ".", "--force"),
    ]

    assert [done.returncode for done in results] == [2, 2]
    assert all("this command also reads or writes" in done.stderr for done in results)
    assert ((logs / "session.json").read_bytes(), log.read_bytes()) == before


@pytest.mark.process
def test_standard_input(nncf_tools: Run, folder: pathlib.Path) -> None:
    """A recording that comes by standard input is not replaced."""
    before = content_of(folder)
    with (folder / "a.json").open("rb") as file:
        done = nncf_tools("report", "-", "-o", "a.json", "--force", stdin=file)

    judge_refused(done, folder, before, "option --output: " + OTHER_NAME.format("a.json"))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["pipe", "pipe.html", "pipe.xyz"])
def test_streams_get_text(in_process: Run, folder: pathlib.Path, command: str, name: str) -> None:
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


@pytest.mark.parametrize("command", COMMANDS)
def test_descriptor_gets_text(in_process: Run, folder: pathlib.Path, command: str) -> None:
    """A descriptor gets text, also of a file whose ending means something."""
    descriptor = os.open(folder / "x.html", os.O_RDWR | os.O_CREAT)
    done = in_process(*COMMANDS[command], "-o", f"/dev/fd/{descriptor}")
    os.close(descriptor)

    assert done.returncode == 0
    assert (folder / "x.html").read_bytes().startswith(BEGINS[command][""])


@pytest.mark.parametrize(("name", "begins"), [("p.md", "### "), ("p.txt", "BUILD-UP OF MEMORY"), ("p", "BUILD-UP")])
def test_peak(in_process: Run, folder: pathlib.Path, name: str, begins: str) -> None:
    """The ending decides for --peak, too."""
    done = in_process("report", "stacks.json", "--peak", "-o", name)

    assert done.returncode == 0
    assert (folder / name).read_text().startswith(begins)


@pytest.mark.parametrize("command", COMMANDS)
def test_picture_is_that_of_plot(in_process: Run, folder: pathlib.Path, command: str) -> None:
    """A picture as output is the same as that of --plot, and no text is printed."""
    done = in_process(*COMMANDS[command], "-o", "output.svg")
    in_process(*COMMANDS[command], "--plot", "plot.svg")
    texts = [
        [line for line in (folder / name).read_text().splitlines() if "<!-- " in line]
        for name in ("output.svg", "plot.svg")
    ]

    assert done.stdout == ""
    assert texts[0] == texts[1] != []


def test_compare_page(in_process: Run, folder: pathlib.Path) -> None:
    """The page of a comparison has all figures, runs no program, and escapes what a command contains."""
    session({"rss": mib(100, 400)}, command=["work", "<b>&</b>"]).save(folder / "c.json")
    in_process("compare", "a.json", "c.json", "-o", "x.html")
    page = (folder / "x.html").read_text()

    assert "&lt;b&gt;&amp;&lt;/b&gt;" in page
    assert "<b>" not in page
    assert "<script" not in page
    assert "Peak RSS, MiB" in page
    assert "--details" not in page


def test_nothing_in_common_to_draw(in_process: Run, folder: pathlib.Path) -> None:
    """A picture that cannot be drawn is noticed before the other file is written."""
    session({"rss": mib(100, 400), "system": mib(100, 400)}).save(folder / "both.json")
    session({"system": mib(100, 400)}).save(folder / "c.json")
    done = in_process("compare", "both.json", "a.json", "c.json", "-o", "x.md", "--plot", "x.svg")

    assert (done.returncode, (folder / "x.md").exists(), (folder / "x.svg").exists()) == (1, False, False)
    assert done.stderr == "nncf-tools: error: option --plot: the runs have no memory metric in common to draw\n"


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o444])
@pytest.mark.parametrize("name", ["out.json", "out.svg"])
def test_replaced_file_keeps_its_mode(in_process: Run, folder: pathlib.Path, name: str, mode: int) -> None:
    """--force replaces what a file holds, not who may read it."""
    (folder / name).touch()
    (folder / name).chmod(mode)
    done = in_process("report", "a.json", "-o", name, "--force")

    assert done.returncode == 0
    assert (folder / name).stat().st_mode & 0o777 == mode
    assert (folder / name).stat().st_size


@pytest.mark.process
def test_session_keeps_its_mode(nncf_tools: Run, folder: pathlib.Path) -> None:
    """`monitor --force` replaces a private session by a private one; a new one has the usual mode."""
    (folder / "a.json").chmod(0o600)
    for name in ("a.json", "new.json"):
        assert nncf_tools("monitor", "-q", "-o", name, "--force", "true").returncode == 0
    umask = os.umask(0)
    os.umask(umask)

    assert (folder / "a.json").stat().st_mode & 0o777 == 0o600
    assert (folder / "new.json").stat().st_mode & 0o777 == 0o666 & ~umask
