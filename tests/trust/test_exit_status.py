from __future__ import annotations

import json
import pathlib
import signal
import subprocess
import sys
from typing import Any

import pytest

from nncftools import Session
from tests.conftest import HANGING_S, command_line
from tests.trust.recorder import SESSION, changed_package, state_of

pytestmark = pytest.mark.process

COUNTING = """
here = os.path.abspath(__file__)
left = int(open(os.path.join(os.path.dirname(here), "moment")).read())
def count(frame, event, argument):
    global left
    if event == "call" and "/nncftools/" in frame.f_code.co_filename:
        left -= 1
        if left == 0:
            os.kill(os.getpid(), 9)
def say():
    with open(os.path.join(os.path.dirname(here), "calls"), "w") as file:
        file.write(str(-left))
import atexit
atexit.register(say)
sys.setprofile(count)
"""
"""The sampler kills itself at a numbered function call; if it survives, it prints the number of calls."""
MOMENTS = """
import json, pathlib, sys
from nncftools.errors import NncfToolsError
from nncftools.journal import reading
from nncftools.journal.writing import Plan
from nncftools.sampler import client
from nncftools.sampler.client import Starter

moment = pathlib.Path(client.__file__).with_name("moment")

def run(starter, at):
    moment.write_text(str(at))
    plan = Plan(["rss"])
    journal = reading.create(pathlib.Path(f"{at}.journal.jsonl"), replace=False)
    with client.Sampler(starter, plan, ["sh", "-c", f"echo > ran-{at}; exit 5"]) as sampler:
        sampler.start(client.header("", [], None, plan), journal)
        outcome = sampler.wait()
    return [at, outcome.exit_code, outcome.pid is not None, pathlib.Path(f"ran-{at}").exists(), outcome.lost]

times = int(sys.argv[1])
with Starter() as starter:
    first = run(starter, -1)
    calls = int(moment.with_name("calls").read_text())
    print(json.dumps([first, *(run(starter, max(1, calls * at // times)) for at in range(times))]))
    children = pathlib.Path(f"/proc/self/task/{client.os.getpid()}/children").read_text().split()
    sys.exit(f"left: {children}" if children else 0)
"""
AT_A_MESSAGE = """
from nncftools.sampler.link import Link
send = Link.send
def killed(link, key, value=True):
    if "{when}" == "after":
        send(link, key, value)
    if key == "{key}":
        os.kill(os.getpid(), {number})
    send(link, key, value)
Link.send = killed
"""


def result_of(words: list[str], folder: pathlib.Path, **options: Any) -> subprocess.CompletedProcess[str]:  # noqa: ANN401 — passed on
    """Run to the end."""
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=HANGING_S, **options)


class TestKilledSampler:
    @pytest.mark.long
    def test_at_any_moment(self, tmp_path: pathlib.Path) -> None:
        """Killed at 25 moments from start to end: the status is that of the command, if there was one."""
        environment = changed_package(tmp_path / "changed", COUNTING)
        result = result_of([sys.executable, "-c", MOMENTS, "25"], tmp_path, env=environment)
        assert result.returncode == 0, result.stderr
        runs = json.loads(result.stdout)

        assert len(runs) == 26
        for moment, status, has_pid, has_run, lost in runs:
            assert has_pid == has_run, moment
            assert (status == 5) == has_run, moment
            assert (lost is None) == (moment == -1 or (lost is None and has_run)), moment
        assert {has_run for _, _, _, has_run, _ in runs} == {True, False}

    @pytest.mark.parametrize(
        ("key", "when"),
        [
            ("started", "before"),
            ("exit", "before"),
            ("end", "after"),
            pytest.param("started", "after", marks=pytest.mark.long),
            pytest.param("sampled", "before", marks=pytest.mark.long),
            pytest.param("sampled", "after", marks=pytest.mark.long),
            pytest.param("exit", "after", marks=pytest.mark.long),
            pytest.param("end", "before", marks=pytest.mark.long),
        ],
    )
    def test_at_a_message(self, tmp_path: pathlib.Path, key: str, when: str) -> None:
        """Killed before or after any of its messages: the status is the command's, and the recorded data is kept."""
        change = AT_A_MESSAGE.format(key=key, when=when, number=9)
        environment = changed_package(tmp_path / "changed", change)
        # The child inherited from the shell is not mistaken for the command.
        inner = " ".join(command_line("monitor", "-q", "--no-plot", "-o", SESSION, "sh", "-c", "'echo $$; exit 5'"))
        result = result_of(["sh", "-c", f"true & exec {inner}"], tmp_path, env=environment)
        assert result.returncode == 5
        assert state_of(int(result.stdout)) == ""
        if key == "started":
            assert "no session could be made" in result.stderr
        else:
            ended = Session.load(tmp_path / SESSION).exit
            assert (ended and ended.code, result.stderr) == (5, "")

    def test_terminate_when_its_pid_is_not_known(self, tmp_path: pathlib.Path) -> None:
        """The command of a sampler that died before reporting it can be ended."""
        environment = changed_package(tmp_path / "changed", AT_A_MESSAGE.format(key="started", when="before", number=9))
        parent = "$(cut -d' ' -f4 /proc/$$/stat)"
        wait = f"until grep -q '[-]-no-plot' /proc/{parent}/cmdline; do :; done; kill -TERM {parent}; exec sleep 60"
        words = command_line("monitor", "-q", "--no-plot", "-o", SESSION, "sh", "-c", wait)
        result = result_of(words, tmp_path, env=environment)

        assert result.returncode == 128 + signal.SIGTERM
