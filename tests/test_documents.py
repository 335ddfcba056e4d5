"""README and the documents: every link, command and output. ``python -m tests.test_documents`` writes outputs again.

A block marked ``text`` whose first line is ``$ nncf-tools …`` is the output of this command in a folder with the
recordings of ``examples/recordings``.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from nncftools.cli import app
from tests.conftest import command_line
from tests.surroundings import HANGING_S

ROOT = Path(__file__).parents[1]
RECORDINGS = ROOT / "examples" / "recordings"
FURTHER_FILES = (
    "examples/compression/smollm2.csv",
    "tests/data/runs/job-rank0.json",
    "tests/data/runs/job-rank1.json",
    "tests/data/runs/job-rank2.json",
    "tests/data/runs/logs/mprof.dat",
)
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINKING = [*PAGES, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "examples").rglob("*.md"))]
PYTHON = f"{shlex.quote(sys.executable)} -c pass"
GROWS = f"{shlex.quote(sys.executable)} -c 'import time; data = bytearray(100 << 20).upper(); time.sleep(0.5)'"
CANNOT_RUN = {
    "--install-completion": "changes the shell",
    "nncf-tools watch": "needs a recording that runs: tests/cli/test_watch.py",
    "nncf-tools fit": "needs control groups: tests/cli/fit",
    "nncf-tools forecast": "needs a model: tests/cli/forecast",
    "nncf-tools sweep": "needs a model: tests/cli/sweep",
}
STAND_INS = {
    "run-rank*.json": "run-rank0.json",
    "CMD": PYTHON,
    "--pid 4711 --duration 60": f"--pid {os.getpid()} --duration 0.2",
    "-o base.json": "-o again.json",
    "-o before.json": "-o again.json",
    "-o after.json": "-o again.json",
}
EXPORT = "optimum-cli export openvino -m model --task text-generation-with-past --weight-format int8 ov"
FORECAST = "optimum-cli export openvino --task text-generation-with-past --model llama --weight-format int8 out"
AFTER_PROFILE = "memory_logs/latest/session.html · more: nncf-tools report --details\n"
AFTER_MONITOR = "memory_logs/latest/session.html · which line held it: nncf-tools profile COMMAND\n"
REPLAYED = {
    "profile -- python examples/allocate.py --small": ("report allocate.json", AFTER_PROFILE),
    "profile -- python mod.py": ("report mod.json", AFTER_PROFILE),
    f"profile -- {EXPORT}": ("report export.json", AFTER_PROFILE),
    "monitor -- python examples/allocate.py --small": ("report monitor.json", AFTER_MONITOR),
    "profile -- python grow.py": ("report died.json", AFTER_PROFILE),
    "fit -- python mod.py": ("fit --resume --free-only -o fit -- python mod.py", ""),
    f"forecast --for 4GiB -- {FORECAST}": (f"forecast --resume -o forecast --for 4GiB -- {FORECAST}", ""),
}
"""Commands that record: the command that shows their recording in the same way, and the line that only they print."""
KEPT = {
    "sweep --model DIR --output OUT/smollm2_sweep.csv --grid full …": "examples/compression/smollm2_sweep.log",
    "pytest --memory": "examples/recordings/pytest.txt",
}
"""Commands that cannot run in this test, and the file that keeps their output."""
BLOCK = re.compile(
    r"^```text\n\$ (?P<command>(?:nncf-tools|pytest) (?:[^\n]*\\\n)*[^\n]*)\n.*?^```$", re.DOTALL | re.MULTILINE
)


def readme_commands() -> list[str]:
    """Return the commands of nncf-tools in README, each once: lines of blocks, and code in tables."""
    blocks = re.findall(r"^```bash\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    lines += re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", README, flags=re.DOTALL | re.MULTILINE))
    found = [line for line in lines if line.startswith("nncf-tools ")]
    return [line for line in dict.fromkeys(found) if not any(part in line for part in CANNOT_RUN)]


def test_length() -> None:
    """README has at most 110 lines."""
    assert len(README.splitlines()) <= 110


@pytest.mark.parametrize("page", LINKING, ids=lambda page: str(page.relative_to(ROOT)))
def test_links(page: Path) -> None:
    """Links of a page to files of the repository lead to files, and to headings that the file has."""
    links = re.findall(r"\]\(([^)\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
    files = [link for link in links if not link.startswith(("http:", "https:"))]

    assert [link for link in files if not is_target(page, link)] == []


def is_target(page: Path, link: str) -> bool:
    """Return whether a link leads to a file, and to one of its headings if it names a heading."""
    name, _, heading = link.partition("#")
    file = page.parent / name if name else page
    if not file.exists():
        return False
    return not heading or heading in anchors(file.read_text(encoding="utf-8"))


def anchors(text: str) -> list[str]:
    """Return the names of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


@pytest.mark.parametrize(
    "page", [*sorted((ROOT / "docs/internals").glob("*.md")), ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name
)
def test_files(page: Path) -> None:
    """Each module that a page for developers names is in the repository."""
    named = re.findall(r"`([\w/]+\.py)`", page.read_text(encoding="utf-8"))

    assert [name for name in named if not any(ROOT.glob(name)) and not any(ROOT.glob(f"nncftools/**/{name}"))] == []


def test_index() -> None:
    """The index links to every document."""
    folder = ROOT / "docs"
    index = (folder / "README.md").read_text(encoding="utf-8")
    names = [str(page.relative_to(folder)) for page in PAGES[1:]]

    assert [name for name in names if name != "README.md" and f"({name})" not in index] == []


@contextlib.contextmanager
def recordings() -> Iterator[None]:
    """Make a folder with the recordings of the documents the working folder, on a terminal of 80 columns."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(RECORDINGS / "fit", folder / "fit")
        (folder / "forecast").mkdir()
        for packed in RECORDINGS.rglob("*.gz"):
            unpacked = folder / packed.relative_to(RECORDINGS).with_suffix("")
            unpacked.write_bytes(gzip.decompress(packed.read_bytes()))
        make_model(folder)
        for file in FURTHER_FILES:
            shutil.copy(ROOT / file, folder)
        programs = f"{folder / 'bin'}:{os.environ['PATH']}"
        environment = {"PATH": programs, "COLUMNS": "80", "NO_COLOR": "1", "TZ": "UTC", "LANG": "C.UTF-8"}
        os.chdir(folder)
        try:
            with mock.patch.dict(os.environ, environment):
                time.tzset()
                yield
        finally:
            os.chdir(before)
            time.tzset()


def make_model(folder: Path) -> None:
    """Make the model of the forecast, whose weights are a hole in the file, and a stand-in for ``optimum-cli``."""
    (folder / "llama").mkdir()
    shutil.copy(RECORDINGS / "forecast" / "config.json", folder / "llama")
    weights = folder / "llama" / "model.safetensors"
    header = (folder / "forecast" / "model.safetensors").rename(weights).read_bytes()
    ends = [tensor["data_offsets"][1] for tensor in json.loads(header[8:]).values() if "data_offsets" in tensor]
    os.truncate(weights, len(header) + max(ends))
    (folder / "bin").mkdir()
    (folder / "bin/optimum-cli").touch(0o755)


def output_of(command: str) -> str:
    """Return what a command of a page prints: from recordings, or the output that is kept."""
    command = re.sub(r"\\\n +", "", command).removeprefix("nncf-tools ")
    command, _, lines = command.partition(" | head -")
    text = (ROOT / KEPT[command]).read_text(encoding="utf-8") if command in KEPT else replay(command)
    return "".join(text.splitlines(keepends=True)[: int(lines) if lines else None])


def replay(command: str) -> str:
    """Return what a command prints, or what it printed when its recording was made."""
    command, last_line = REPLAYED.get(command, (command, ""))
    words = shlex.split(command)
    if "*" in words[-1]:
        words[-1:] = sorted(str(path) for path in Path().glob(words[-1]))
    printed = io.StringIO()
    with (
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
        mock.patch("sys.argv", [app.PROGRAM, *words]),
        mock.patch("signal.signal"),
    ):
        app.run()
    assert "nncf-tools: error: " not in printed.getvalue()
    return printed.getvalue().replace(f"{Path.cwd()}/", "").strip("\n") + "\n" + last_line


def rewritten(text: str) -> str:
    """Return a page with the outputs of today."""
    return BLOCK.sub(lambda block: f"```text\n$ {block['command']}\n{output_of(block['command'])}```", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_outputs(page: Path) -> None:
    """Outputs in a page are those of today."""
    text = page.read_text(encoding="utf-8")
    with recordings():
        assert rewritten(text) == text


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with the recordings that README's commands name, and a stand-in for ``optimum-cli``."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "bin").mkdir()
    (folder / "bin/optimum-cli").write_text("#!/bin/sh\nexec sleep 0.2\n")
    (folder / "bin/optimum-cli").chmod(0o755)
    (folder / "my_package.py").write_text("")
    for where, program in ((["-o", "run.json"], PYTHON), ([], PYTHON), ([], GROWS)):
        words = [*command_line("profile", "-q", *where, "--"), *shlex.split(program)]
        subprocess.run(words, cwd=folder, check=True, timeout=HANGING_S)
    for name in ("before", "after", "run-rank0", "base-1", "base-2", "new-1", "new-2"):
        shutil.copy(folder / "run.json", folder / f"{name}.json")
    return folder


@pytest.mark.process
@pytest.mark.long
@pytest.mark.parametrize("command", readme_commands())
def test_command(prepared: Path, tmp_path: Path, command: str) -> None:
    """A command of README works as it stands, with a real command in place of CMD."""
    shutil.copytree(prepared, tmp_path, symlinks=True, dirs_exist_ok=True)
    words = command
    for word, stand_in in STAND_INS.items():
        words = words.replace(word, stand_in)
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "COLUMNS": "80"}
    done = subprocess.run(
        [*command_line(), *shlex.split(words)[1:]],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGING_S,
    )

    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


if __name__ == "__main__":
    for page in PAGES:
        with recordings():
            page.write_text(rewritten(page.read_text(encoding="utf-8")), encoding="utf-8")
