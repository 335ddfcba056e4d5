from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pexpect
import pytest
import typer

from nncftools.cli.app import app
from nncftools.cli.options import complete_program
from nncftools.metrics import METRICS
from tests.conftest import HANGING_S, Run

FOLDER = Path(__file__).parents[2] / "completions"
CASES = [
    ("nncf-tools mon", "monitor"),
    ("nncf-tools monitor --max-m", "--max-memory"),
    ("nncf-tools profile --type sw", "swap"),
    ("nncf-tools profile --type rss,sw", "rss,swap"),
    ("nncf-tools report --format htm", "html"),
    ("nncf-tools report --unit Gi", "GiB"),
    ("nncf-tools report run.j", "run.json"),
    ("nncf-tools report late", "latest"),
    ("nncf-tools monitor nncf-to", "nncf-tools"),
]
"""What is typed before Tab, and what its last word becomes."""
OFFERED = {
    ("bash", "schema -"): "-h\n--help\n",
    ("zsh", "help ma"): """_arguments '*: :(("mark":"Name the operation that starts now."))'\n""",
    ("fish", "monitor --na"): "--name\tA name for the run.\n",
    ("fish", "profile --type rss,ps"): f"rss,pss\t{METRICS['pss'].meaning}\n",
    ("powershell", "viz-compression -f p"): "png::: \npdf::: \n",
}
"""What the scripts get for a shell and a line."""


def generator() -> ModuleType:
    """Return the program that writes the scripts."""
    spec = importlib.util.spec_from_file_location("generate", FOLDER / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with one session, and a recording."""
    (tmp_path / "run.json").touch()
    (tmp_path / "memory_logs" / "first").mkdir(parents=True)
    (tmp_path / "memory_logs" / "first" / "session.json").touch()
    return tmp_path


def environment() -> dict[str, str]:
    """Return an environment in which nncf-tools is found and the user's settings are not read."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "PS1": "> ", "TERM": "xterm", "HOME": "/nonexistent"}


def shell(name: str) -> str:
    """Return the path of a shell; in CI all shells must be installed."""
    path = shutil.which(name)
    if path is None:
        if "CI" in os.environ:
            pytest.fail(f"in CI {name} must be there")
        pytest.skip(f"{name} is not installed")
    return path


@pytest.mark.parametrize("name", ["bash", "zsh", "fish", "powershell"])
def test_scripts_are_current(name: str) -> None:
    """The generator writes exactly the scripts in the repository."""
    of = generator()

    assert (FOLDER / of.SHELLS[name]).read_text() == of.script(name)


@pytest.mark.parametrize("asked", OFFERED)
def test_what_scripts_get(
    in_process: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], asked: tuple[str, str]
) -> None:
    """Names and meanings are the same with each release of typer and Click."""
    shell, line = asked
    words = line.split()
    monkeypatch.setenv("_NNCF_TOOLS_COMPLETE", f"complete_{shell}")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", f"nncf-tools {line}")
    monkeypatch.setenv("_TYPER_COMPLETE_WORD_TO_COMPLETE", words[-1])
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    monkeypatch.setenv("COMP_WORDS", f"nncf-tools {line}")
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    with pytest.raises(SystemExit) as ended:
        in_process()

    assert (ended.value.code, sorted(capsys.readouterr().out.split("\n"))) == (0, sorted(OFFERED[asked].split("\n")))


def test_programs_of_folders_that_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder on PATH that is unreadable, missing or empty does not hide the programs of others."""
    (tmp_path / "[mine]").touch(0o755)
    (tmp_path / "[mine].txt").touch(0o644)
    (tmp_path / "[mine]-folder").mkdir()
    monkeypatch.setenv("PATH", os.pathsep.join(["n" * 300, str(tmp_path / "gone"), str(tmp_path)]))

    assert complete_program(typer.Context(typer.main.get_command(app)), "[mi") == ["[mine]"]


def pressed(folder: Path, argv: list[str], prepare: str, typed: str) -> str:
    """Type into an interactive shell, press Tab, and return the completed line."""
    child = pexpect.spawn(
        argv[0], argv[1:], cwd=str(folder), env=environment(), encoding="utf-8", timeout=HANGING_S, dimensions=(40, 200)
    )
    child.sendline(f"{prepare}; PS1='> '; echo read''y")
    child.expect("ready\r\n")
    child.send(f"{typed}\t")
    child.send("\x01echo \r")  # go to the start of the line and let the shell echo it
    child.expect(r"\r\n(nncf-tools [^\r\x1b]*)\r\n")
    line: str = child.match[1]
    child.close(force=True)
    return line.strip()


@pytest.mark.process
@pytest.mark.parametrize(
    "typed, expected", [*CASES[:3], *(pytest.param(*case, marks=pytest.mark.long) for case in CASES[3:])]
)
def test_bash(folder: Path, typed: str, expected: str) -> None:
    """Tab in a real bash completes commands, options, metrics, sessions and programs."""
    argv = [shell("bash"), "--norc", "--noprofile", "-i"]
    prepare = f"bind 'set enable-bracketed-paste off'; source {FOLDER / 'nncf-tools.bash'}"

    assert pressed(folder, argv, prepare, typed) == f"{typed.rpartition(' ')[0]} {expected}"


@pytest.mark.real
@pytest.mark.parametrize("typed, expected", CASES)
def test_zsh(folder: Path, typed: str, expected: str) -> None:
    """Tab in a real zsh does the same."""
    prepare = f"autoload -U compinit; compinit -u -d zdump; source {FOLDER / '_nncf-tools'}"

    assert pressed(folder, [shell("zsh"), "-f", "-i"], prepare, typed) == f"{typed.rpartition(' ')[0]} {expected}"


@pytest.mark.real
@pytest.mark.parametrize("typed, expected", CASES)
def test_fish(folder: Path, typed: str, expected: str) -> None:
    """A real fish offers the same."""
    script = f"source {FOLDER / 'nncf-tools.fish'}; complete -C '{typed}'"
    offered = subprocess.run(
        [shell("fish"), "--no-config", "-c", script],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=HANGING_S,
    ).stdout

    assert expected in [line.partition("\t")[0] for line in offered.splitlines()]
