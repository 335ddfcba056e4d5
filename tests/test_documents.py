"""README and the documents: what a reader can follow, copy and run."""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from tests.conftest import command_line
from tests.surroundings import HANGING_S

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PYTHON = f"{shlex.quote(sys.executable)} -c pass"
GROWS = f"{shlex.quote(sys.executable)} -c 'import time; data = bytearray(100 << 20).upper(); time.sleep(0.5)'"
CANNOT_RUN = {
    "--install-completion": "changes the shell",
    "nncf-tools watch": "needs a recording that runs: tests/cli/test_watch.py",
}
STAND_INS = {
    "run-rank*.json": "run-rank0.json",
    "CMD": PYTHON,
    "--pid 4711 --duration 60": f"--pid {os.getpid()} --duration 0.2",
    "-o base.json": "-o again.json",
    "-o before.json": "-o again.json",
}


def readme_commands() -> list[str]:
    """Return the commands of nncf-tools in README, each once: lines of blocks, and code in tables."""
    blocks = re.findall(r"^```\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    lines += re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", README, flags=re.DOTALL | re.MULTILINE))
    found = [line for line in lines if line.startswith("nncf-tools ")]
    return [line for line in dict.fromkeys(found) if not any(part in line for part in CANNOT_RUN)]


def test_length() -> None:
    """README has at most 150 lines."""
    assert len(README.splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links(page: pathlib.Path) -> None:
    """Links of a page to files of the repository lead to files."""
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
    files = [link for link in links if not link.startswith(("http:", "https:"))]

    assert [link for link in files if not (page.parent / link).exists()] == []


def test_index() -> None:
    """The index links to every document."""
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    names = [str(page.relative_to(ROOT / "docs")) for page in PAGES[1:]]

    assert [name for name in names if name != "README.md" and f"({name})" not in index] == []


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
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
def test_command(prepared: pathlib.Path, tmp_path: pathlib.Path, command: str) -> None:
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
