"""Which modules the processes of a recording load; ``python -m tests.recorded.loading`` writes the goldens anew.

Each process runs with Python's ``-X importtime``, which names every module that it imports, also late ones; those that
a bare Python loads are left out. A list is of the releases that its first line names.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.conftest import HANGING_S

FOLDER = Path(__file__).parents[1] / "golden" / "loaded"
ROOT = Path(__file__).parents[2]
OURS = "nncftools", "_nncf_tools_marks"
"""Where our modules are: the hook loads some under a name of their own."""
_LISTED = "import time:"
_NOTE = [sys.executable, "-X", "importtime"]
_START = """
import sys
sys.executable = sys.argv.pop(1)
from nncftools.__main__ import main
try:
    main()
finally:
    for name in sys.modules:
        if name.startswith("nncftools"):
            print("import time: |", name, file=sys.stderr)
"""
"""The command line starts its sampler and helper with a Python that keeps lists, too.

The list of ``-X importtime`` lacks what ``importlib.import_module`` loads.
"""
_HOLDS = """
import sys, time
sys.path.insert(0, sys.argv[1])
import nncftools
with nncftools.operation("Export"):
    held = bytearray(b"x") * (80 << 20)
    time.sleep(0.3)
"""


def modules(text: str) -> set[str]:
    """Return the modules that ``-X importtime`` lists."""
    lines = [line.rpartition("|")[2].strip() for line in text.splitlines() if line.startswith(_LISTED)]
    return set(lines) - {"imported package"}


def of_python(words: Sequence[str], folder: Path, **environment: str) -> set[str]:
    """Return what a Python with these arguments loads."""
    return modules(_run([*_NOTE, *words], folder, **environment).stderr)


def _run(words: Sequence[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "COLUMNS": "80", **environment}
    return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=HANGING_S, check=True)


def of_recording(words: Sequence[str], folder: Path) -> dict[str, set[str]]:
    """Return what the processes of a recording load: the command line, the sampler, and the helper if there is one."""
    python = folder / "python"
    python.write_text(
        "#!/bin/sh\n"
        "for word; do case $word in sampler) name=sampler;; stacks) name=helper;; esac; done\n"
        f'exec {sys.executable} -X importtime "$@" 2>"{folder}/${{name:-other}}.list"\n',
        encoding="utf-8",
    )
    python.chmod(0o755)
    found = {"command line": of_python(["-c", _START, str(python), *words], folder)}
    found.update({path.stem: modules(path.read_text()) for path in folder.glob("*.list")})
    return found


def bare(folder: Path, *options: str) -> set[str]:
    """Return what a Python loads by itself."""
    return of_python([*options, "-c", ""], folder)


def monitor(folder: Path) -> dict[str, set[str]]:
    """Return what `monitor --quiet` loads in the command line and in the sampler."""
    return of_recording(["monitor", "--quiet", "--no-plot", "-o", "run.json", "--", "true"], folder)


def profile(folder: Path) -> dict[str, set[str]]:
    """Return what `profile --stacks` loads in sampler and helper, for a program that grows."""
    python = [sys.executable, "-c", _HOLDS, str(ROOT)]
    return of_recording(["profile", "--quiet", "--stacks", "-i", "0.02", "-o", "run.json", "--", *python], folder)


def marked(folder: Path, program: str) -> set[str]:
    """Return what the hook, and what is called of us, loads in a program that is profiled."""
    words = ["profile", "--quiet", "--no-stacks", "-o", "run.json", "--", *_NOTE, "-c", program]
    return modules(_run([sys.executable, "-m", OURS[0], *words], folder).stderr)


def _help(folder: Path) -> set[str]:
    return of_python(["-m", OURS[0], "--help"], folder)


def _imported(folder: Path) -> set[str]:
    return of_python(["-c", "import nncftools"], folder)


ISOLATED = ("-I", "-S")
LISTS: dict[str, tuple[Callable[[Path], set[str]], tuple[str, ...]]] = {
    "help": (_help, ()),
    "import": (_imported, ()),
    "hook": (lambda folder: marked(folder, ""), ()),
    "operation": (lambda folder: marked(folder, "import nncftools\nwith nncftools.operation('Export'): pass"), ()),
    "quiet": (lambda folder: monitor(folder)["command line"], ()),
    "sampler": (lambda folder: monitor(folder)["sampler"] | profile(_inner(folder))["sampler"], ISOLATED),
    "helper": (lambda folder: profile(folder)["helper"], ISOLATED),
}
"""What is looked at, and the options of the Python that runs it."""


def _inner(folder: Path) -> Path:
    inner = folder / "profile"
    inner.mkdir()
    return inner


def foreign(name: str, folder: Path) -> set[str]:
    """Return the modules of others that one of the lists is of."""
    find, options = LISTS[name]
    return {module for module in find(folder) - bare(folder, *options) if module.partition(".")[0] not in OURS}


def releases(name: str) -> str:
    """Return the releases that decide about what is in a list."""
    others = ("typer", "click", "rich", "msgspec") if name in {"help", "quiet"} else ()
    versions = [f"{other} {importlib.metadata.version(other)}" for other in others]
    return ", ".join([f"# Python {sys.version_info[0]}.{sys.version_info[1]}", *versions])


def listed(name: str) -> tuple[str, set[str]]:
    """Return the releases that a list is of, and its modules."""
    first, *names = (FOLDER / f"{name}.txt").read_text(encoding="ascii").splitlines()
    return first, set(names)


def main() -> None:
    """Write the lists."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in LISTS:
        with tempfile.TemporaryDirectory() as folder:
            names = sorted(foreign(name, Path(folder)))
        lines = [releases(name), *names]
        (FOLDER / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
        print(f"{name}: {len(names)}")


if __name__ == "__main__":
    main()
