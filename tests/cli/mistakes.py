"""Natural mistakes on the command line; ``python -m tests.cli.mistakes`` writes what each prints into the docs."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from nncftools.cli import app
from nncftools.session.model import Start
from tests.made_up import mib, session

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[2] / "docs" / "limits-and-mistakes.md"
MISTAKES = (
    "moniter python job.py",
    "python job.py",
    "help moniter",
    "version",
    "monitor",
    "monitor job.py",
    "profile ./job.py",
    "monitor ./tool.py",
    "monitor pyhton job.py",
    "monitor help",
    "monitor -t rss uss python job.py",
    "monitor 'python job.py | tee log'",
    "monitor --interval soon python job.py",
    "monitor -i 100 ms python job.py",
    "monitor --max-memory 8 python job.py",
    "monitor --unit gigs python job.py",
    "monitor --outpt run.json python job.py",
    "monitor --live-view python job.py",
    "monitor --live=yes python job.py",
    "profile --pid 4711",
    "monitor -o run.json python job.py",
    "monitor --capture log --pid 1",
    "profile --mark-call prepare python job.py",
    "profile --mark-on '(' python job.py",
    "report lates",
    "report run.jsn",
    "report latest~7",
    "report job.py",
    "report --type RAM",
    "report --html",
    "monitor --gpu python job.py",
    "view run.json",
    "report --format htm",
    "report --format pdf",
    "report --format",
    "report --at 2min",
    "report latest latest~1",
    "compare latest",
    "compare --fail-if 'peak_rs>+5%' latest~1 latest",
    "mark",
    "mark Weight Compression",
    "sweep",
    "viz-compression -i table.csv",
)
UNDERSTOOD = (
    ("`-t RSS`, `-t rss,uss`", "metrics in any case, several as one word; `-t rss -t uss` is the same"),
    ("`-i 100ms`, `--duration 2min`, `--at '0.5 s'`", "times: without a unit seconds, else ms, s, min, h, d"),
    ("`--max-memory 8G`, `'8 GiB'`, `500MB`", "sizes: K, M, G and T are binary, as KiB, MiB, GiB are"),
    ("`-u mib`, `-u G`", "units in any case, or by their first letter"),
    ("`-f HTML`", "formats in any case"),
    ("`nncf-tools help monitor`", "`nncf-tools monitor --help`"),
    ("`latest`, `last`, `latest~1`, `memory_logs/latest`", "recordings, in `report`, `compare`, `replay` and `watch`"),
)


@contextlib.contextmanager
def surroundings(folder: Path) -> Iterator[None]:
    """Make a folder with a script and recordings the working folder, with four programs on PATH."""
    programs = folder / "bin"
    programs.mkdir()
    for name in ("python", "true", "optimum-cli", "tee"):
        (programs / name).touch(0o755)
    (folder / "job.py").write_text("print('work')\n")
    (folder / "tool.py").write_text("print('work')\n")
    (folder / "tool.py").chmod(0o755)
    (folder / "table.csv").write_text("mode,model size,accuracy\nfp32,big,1\n")
    for number, name in enumerate(("before", "after")):
        file = folder / "memory_logs" / name / "session.json"
        file.parent.mkdir(parents=True)
        start = Start(utc=f"2026-11-22T12:0{number}:00+00:00")
        session({"rss": mib(10, 50, 20 + number)}, start=start).save(file)
        os.utime(file, (number, number))
    session({"rss": mib(10, 50)}).save(folder / "run.json")
    environment = {"PATH": str(programs), "COLUMNS": "80", "NO_COLOR": "1"}
    before = Path.cwd()
    os.chdir(folder)
    try:
        with mock.patch.dict(os.environ, environment):
            yield
    finally:
        os.chdir(before)


def printed(line: str) -> str:
    """Return what a command line prints to standard error, and its exit status."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch("sys.argv", [app.PROGRAM, *shlex.split(line)]),
    ):
        status = app.run()
    assert status, f"{line}: no mistake"
    assert not out.getvalue()
    return err.getvalue()


def page() -> str:
    """Return docs/limits-and-mistakes.md, with the messages and the table of today."""
    with tempfile.TemporaryDirectory() as folder, surroundings(Path(folder)):
        messages = [f"$ nncf-tools {line}\n{printed(line)}" for line in MISTAKES]
    rows = "".join(f"| {typed} | {meant} |\n" for typed, meant in UNDERSTOOD)
    before, start, _ = PAGE.read_text(encoding="utf-8").partition("```console\n")
    heading = "```\n\nThese are no mistakes:\n\n| typed | understood as |\n|---|---|\n"
    return before + start + "\n".join(messages) + heading + rows


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
