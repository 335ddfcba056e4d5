"""Why code lines or operations are missing: real processes, and the texts of recordings."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nncftools.analysis.session import Session
from nncftools.render.sentences import missing_line
from nncftools.session.model import Snapshots
from nncftools.snapshots.finding import _ORDERS, _TABLES
from tests.made_up import MIB, process, session
from tests.made_up_stacks import grown, stack
from tests.pythons import python

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Run

GROWS = """import sys, time
kept = []
for _ in range(60):
    kept.append(bytearray(b"x" * (1 << 20)))
    time.sleep(0.01)
print("done")
"""
HIDES = f"""import ctypes, os
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
if os.fork():
    os.wait()
    os._exit(0)
{GROWS}"""
"""Forbids reading its memory, and grows in a child: the helper may have opened the memory of the first process."""
IN_CHROOT = f"""import os, time
os.chroot('.')
if os.fork():
    os.wait()
    os._exit(0)
{GROWS}"""
"""Grows in a child, too: the helper may have looked at the first process before."""
KILLS_HELPER = f"""import os, signal
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        words = open(f"/proc/{{pid}}/cmdline", "rb").read().split(b"\\0")
        if b"stacks" in words[4:5]:
            log = os.readlink(f"/proc/{{pid}}/fd/{{int(words[5])}}")
            if os.path.dirname(log) == os.getcwd():
                os.kill(int(pid), signal.SIGKILL)
    except OSError:  # it has ended
        pass
{GROWS}"""
AS_OTHER = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
LINES = "code lines are missing: "
PYTHON, LONG = sys.executable, pytest.mark.long


def lose_ptrace() -> None:
    """Drop CAP_SYS_PTRACE, so that root may read what other users may."""
    ctypes.CDLL(None).prctl(24, 19, 0, 0, 0)


def future_python(folder: Path) -> dict[str, str]:
    """Return the variables that make Python 3.10 load a library that is called that of 3.16."""
    library = next(Path(python("3.10")).parents[1].glob("lib/libpython3.10.so.1.0"), None)
    if library is None:
        pytest.skip("this Python 3.10 has no library")
    shutil.copy(library, folder / "libpython3.16.so.1.0")
    (folder / library.name).symlink_to("libpython3.16.so.1.0")
    return {"LD_LIBRARY_PATH": str(folder)}


def run(
    nncf_tools: Run,
    line: str,
    *words: str,
    env: dict[str, str] | None = None,
    before: Callable[[], None] | None = None,
) -> str:
    """Return what is missing of a recording."""
    name, _, options = line.partition(" ")
    done = nncf_tools(f"{name} -q --no-plot -o run.json {options}", *words, env=env, preexec_fn=before)
    assert done.returncode == 0, done.stderr
    return missing_line(Session.load(Path("run.json")))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder of the test, with a script."""
    monkeypatch.chdir(tmp_path)
    Path("use.py").write_text(DEDENT)
    return tmp_path


DD = "dd if=/dev/zero of=/dev/null bs=300M count=9"
DEDENT = f"import json, textwrap\n{GROWS}textwrap.dedent(''); json.loads('1')"
NOTHING = {
    "a script": (f"profile -- {PYTHON} -c", GROWS),
    "monitor": (f"monitor -- {PYTHON} -c", GROWS),
    "monitor of a hidden process": (f"monitor -- {PYTHON} -I -c", HIDES),
    "no stacks": (f"profile --no-stacks -- {PYTHON} -c", GROWS),
    "no marks": (f"profile --no-auto -- {PYTHON} -I -c", GROWS),
    "another program": (f"profile -- {DD}",),
    "a short program": ("profile -- true",),
    "a small Python": ("profile -- bash -c", f"{PYTHON} -I -c 1; {DD}; true"),
    "a line of output": (f"profile --mark-on done -- {PYTHON} -I -c", GROWS),
    "calls, an absent one, and one under two names": (
        "profile --mark-call textwrap:dedent --mark-call textwrap:absent --mark-call json.decoder:JSONDecoder.decode",
        "--mark-call",
        "json:JSONDecoder.decode",
        PYTHON,
        "use.py",
    ),
    "an absent call": (f"profile --mark-call textwrap:absent -- {PYTHON} -c", DEDENT),
    "a call of one program": (
        "profile --mark-call textwrap:dedent -- bash -c",
        '"$0" use.py; env -i "$0" use.py; "$0" -VV; "$0" -m nncftools monitor -qo a.json sleep 0.3',
        PYTHON,
    ),
}


@pytest.mark.parametrize("name", ["a script", *(pytest.param(name, marks=LONG) for name in [*NOTHING][1:])])
def test_nothing_expected(nncf_tools: Run, name: str) -> None:
    """Where nothing is missing, or nothing was expected, nothing is said: not even if the project marks calls."""
    if "program" in name:
        Path("pyproject.toml").write_text("[tool.nncf-tools]\nmark-calls = ['made.up:f']\n")
    assert run(nncf_tools, *NOTHING[name]) == ""


ISOLATED = re.compile(
    r"no Python program loaded the hook: process \d+ \(python[\d.]*\) ran an isolated Python \(-I\), which loads no "
    "hook: run it without -I"
)
CLEARED = (
    "no Python program loaded the hook: the reason is not known; usually the environment lacks our PYTHONPATH and "
    "NNCF_TOOLS_* (env -i, tox), so pass these on; or Python is older than 3.10, so use a newer Python"
)
NOT_CALLED = (
    "1 Python program loaded the hook, but called none of these functions: check their names, and whether a Python "
    "without our environment (env -i, tox) calls them"
)
SHORT = "no Python process ran for at least 0.1 s, so no stack could be read; record a longer run"
HIDDEN = re.compile(
    r"the kernel does not allow reading the memory of process \d+; run nncf-tools as the same user, or as root \(in a "
    r"container: with the capability SYS_PTRACE\)"
)
NOT_READ = "this nncf-tools cannot read the stacks of Python {}; use Python 3.10 to 3.15"
OLDEST = (
    "nncf-tools cannot read the stacks of this Python, and marks no calls of a Python older than 3.10; use CPython "
    "3.10 to 3.15"
)
OLD = "nncf-tools reads neither stacks nor operations of Python {}; use Python 3.10 to 3.15"


EXPECTED = {
    "-I": ((f"profile -- {PYTHON} -I -c", GROWS), "operations are missing: ", ISOLATED),
    "env -i": ((f"profile -- env -i {PYTHON} -c", GROWS), "operations are missing: ", re.escape(CLEARED)),
    "-I, a call": (
        (f"profile --mark-call made.up:f -- {PYTHON} -I -c", GROWS),
        "--mark-call marked nothing for made.up:f: ",
        ISOLATED,
    ),
    "a call": (
        (f"profile --mark-call textwrap:dedent --mark-call made.up:f -- {PYTHON} -c", DEDENT),
        "--mark-call marked nothing for made.up:f: ",
        re.escape(NOT_CALLED),
    ),
    "a line of output": (
        (f"profile --mark-on Epoch -- {PYTHON} -c", GROWS),
        "--mark-on marked nothing: ",
        "no line of the output matches the expression; check it",
    ),
    "short": (("profile -- ./python3 0.2",), LINES, re.escape(SHORT)),
}


@pytest.mark.parametrize("name", ["-I", *(pytest.param(name, marks=LONG) for name in [*EXPECTED][1:])])
def test_expected(nncf_tools: Run, name: str) -> None:
    """What was expected and is missing is one sentence: what, why, and what to do."""
    Path("python3").symlink_to("/bin/sleep")  # too small to be read, however long a busy machine takes
    words, beginning, rest = EXPECTED[name]
    found = run(nncf_tools, *words)

    assert found.startswith(beginning)
    assert re.fullmatch(rest, found.removeprefix(beginning))


def test_hidden_process(nncf_tools: Run) -> None:
    """A program that forbids reading its memory needs root."""
    found = run(nncf_tools, "profile --", PYTHON, "-c", HIDES, before=lose_ptrace)

    assert HIDDEN.fullmatch(found.removeprefix(LINES)), found


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change its user")
def test_other_user(nncf_tools: Run) -> None:
    """A program of another user hides its memory."""
    words = ("profile --", *AS_OTHER, "/usr/bin/python3", "-c", GROWS)
    found = run(nncf_tools, *words, before=lose_ptrace)

    assert HIDDEN.fullmatch(found.removeprefix(LINES)), found


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change its root directory")
def test_chroot(nncf_tools: Run) -> None:
    """A Python whose file is not below its root directory is not said to lack symbols."""
    found = run(nncf_tools, "monitor --stacks --", PYTHON, "-c", IN_CHROOT)

    assert re.search("the file of its Python was not found: .* in a chroot .start nncf-tools in the chroot.", found), (
        found
    )


@pytest.mark.long
def test_future_python(nncf_tools: Run, tmp_path: Path) -> None:
    """The stacks of a Python that is newer than nncf-tools cannot be read."""
    found = run(nncf_tools, "monitor --stacks --", python("3.10"), "-c", GROWS, env=future_python(tmp_path))

    assert found == LINES + NOT_READ.format("3.16")


@pytest.mark.long
@pytest.mark.parametrize(
    "version, sentence",
    [
        ("3.9", OLD.format("3.9")),
        ("3.7", OLD.format("3.7")),
        ("3.6", OLDEST),
    ],
)
def test_old_python(nncf_tools: Run, version: str, sentence: str) -> None:
    """A Python that is too old has no stacks and no operations, and one sentence says so."""
    assert run(nncf_tools, "monitor --stacks --", python(version), "-c", GROWS) == LINES + sentence
    assert run(nncf_tools, "profile --force --", python(version), "-c", GROWS) == LINES + sentence


@pytest.mark.long
def test_old_python_without_stacks(nncf_tools: Run) -> None:
    """Where no stacks are asked for, the sentence is about the operations."""
    missing = run(nncf_tools, "profile --no-stacks --", python("3.9"), "-c", GROWS)

    assert missing == f"operations are missing: {CLEARED}"


@pytest.mark.long
def test_python_below_another_one(nncf_tools: Run) -> None:
    """Where the stacks of one Python are there, and those of another one that holds most are not, this is said."""
    code = f"import subprocess; subprocess.run([{python('3.7')!r}, '-c', {GROWS!r}])"
    found = run(nncf_tools, "monitor --stacks --", PYTHON, "-c", code)

    assert found == LINES + OLD.format("3.7")


@pytest.mark.long
def test_renamed_python(nncf_tools: Run, tmp_path: Path) -> None:
    """A Python under another name is found by its library; its stacks are read."""
    (tmp_path / "worker").symlink_to(python("3.11"))
    shutil.copy(python("3.11"), tmp_path / "renamed")

    assert run(nncf_tools, "monitor --stacks -- ./worker -c", GROWS) == ""
    assert run(nncf_tools, "monitor --stacks --force -- ./renamed -c", GROWS) == ""


@pytest.mark.long
def test_killed_helper(nncf_tools: Run) -> None:
    """If the helper was killed before memory grew, code lines are missing."""
    found = run(nncf_tools, "monitor --stacks --", PYTHON, "-c", KILLS_HELPER)

    assert found.startswith(f"{LINES}the helper process ended early, after 0.")
    assert found.endswith(" s; record again")


PROBLEM = "the stacks of process 7 could not be read: "
REFUSED = "the kernel forbids reading stacks (kernel.yama.ptrace_scope is {})"
DAMAGED = "the log of the helper is damaged (number 0 is missing), after 0.0 s"
REASONS = {
    f"{PROBLEM}the layout of Python 3.13t is not known": "nncf-tools cannot read the stacks of Python 3.13, a build "
    "without the global lock; use Python 3.10 to 3.15 with the lock",
    f"{REFUSED.format(1)}, except of Pythons that load the hook": "kernel.yama.ptrace_scope is 1, and no Python loaded "
    "the hook; run nncf-tools as root, or set kernel.yama.ptrace_scope to 0 with sysctl",
    f"{REFUSED.format(2)}: run as root, or set ptrace_scope to 0 with sysctl": "",
    DAMAGED: f"{DAMAGED}; record again",
    "the helper process failed (KeyError: '{}')": "the helper process failed (KeyError: '{}'); record again",
    "the helper process could not be started": "the helper process could not be started; record again",
}
"""By the recorder's text, the sentence; empty if that is the same."""


@pytest.mark.parametrize("missing", REASONS)
def test_reasons(missing: str) -> None:
    """What this machine cannot produce."""
    of = session(snapshots=Snapshots(missing=missing), processes=[process()])

    assert missing_line(of) == LINES + (REASONS[missing] or missing)


def test_versions() -> None:
    """The sentence names the versions whose layouts are known."""
    assert [*_TABLES, *_ORDERS] == [10, 11, 12, 13, 14, 15]


def test_most_was_seen() -> None:
    """A reason does not matter where stacks cover the peak."""
    of = grown((stack("/a.py:1 f"), 100), missing="the kernel does not allow reading the stacks of process 9")

    assert of.peaks["rss"].low == 100 * MIB
    assert missing_line(of) == ""


def test_one_sentence() -> None:
    """Where code and operations are missing, one sentence is about the code."""
    lacking = Snapshots(missing="the helper process could not be started")
    warnings = ["something else", "--mark-call marked nothing: a reason", "operations are missing: a reason"]

    assert missing_line(session(snapshots=lacking, warnings=warnings)).startswith(f"{LINES}the helper process")
    assert missing_line(session(warnings=warnings)) == warnings[1]


def test_earlier_recordings() -> None:
    """Earlier versions said of every script that nothing was marked."""
    text = "no operation was marked: 1 Python program loaded the hook, but none of the functions was called"

    assert missing_line(session(warnings=[text])) == ""
