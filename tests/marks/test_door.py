"""The permission that the hook gives to the helper, recorded by a made-up ctypes: this kernel may have no yama."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

from nncftools.marks import calls
from tests.conftest import HANGING_S

CTYPES = """
import os
c_ulong = int
class CDLL:
    def __init__(self, name):
        pass
    def prctl(self, *arguments):
        with open({log!r}, "a") as log:
            print(os.getpid() == {parent}, *arguments, file=log)
        return 0
"""
HELPER = os.getpid()
"""Any process that runs."""
ALLOWED = f"{0x59616D61} {HELPER} 0 0 0"


def allowed(folder: pathlib.Path, script: str, helper: int | None) -> list[str]:
    """Run a script with the hook; return each call of prctl(2): whether it was in the first process, and arguments."""
    log = folder / "prctl"
    log.touch()
    text = CTYPES.format(log=str(log), parent='int(os.environ.setdefault("FIRST", str(os.getpid())))')
    (folder / "ctypes.py").write_text(textwrap.dedent(text), encoding="utf-8")
    marks = folder / "marks.jsonl"
    marks.touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        patch.delenv("FIRST", raising=False)
        environment = {**calls.os.environ, **calls.environment(marks, [], helper)}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True, timeout=HANGING_S)
    return log.read_text(encoding="utf-8").splitlines()


@pytest.mark.process
def test_only_the_helper(tmp_path: pathlib.Path) -> None:
    """A Python that loads the hook allows the helper, and nobody else, to read its memory."""
    assert allowed(tmp_path, "pass", HELPER) == [f"True {ALLOWED}"]


@pytest.mark.process
def test_again_in_forked_children(tmp_path: pathlib.Path) -> None:
    """A permission is of one process only, so a forked child gives it again."""
    script = "import os; pid = os.fork(); pid or os._exit(0); os.waitpid(pid, 0)"

    assert allowed(tmp_path, script, HELPER) == [f"True {ALLOWED}", f"False {ALLOWED}"]


@pytest.mark.process
@pytest.mark.parametrize("helper", [None, -1, 0, 1])
def test_nobody(tmp_path: pathlib.Path, helper: int | None) -> None:
    """Without a helper nothing is allowed; -1 would allow it to every process."""
    assert allowed(tmp_path, "pass", helper) == []


@pytest.mark.process
def test_another_process_with_its_pid(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the helper's end, another process with its PID is not allowed."""
    monkeypatch.setattr(calls, "began_at", lambda _: "77")

    assert allowed(tmp_path, "pass", HELPER) == []
