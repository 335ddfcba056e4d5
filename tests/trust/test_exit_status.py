from __future__ import annotations

import signal
from pathlib import Path

import pytest

from nncftools import Session
from tests.conftest import command_line
from tests.trust.recorder import SESSION, changed_package, result_of, state_of

pytestmark = pytest.mark.process

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


class TestKilledSampler:
    @pytest.mark.parametrize(
        "key, when",
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
    def test_at_a_message(self, tmp_path: Path, key: str, when: str) -> None:
        """Killed before or after any of its messages: the status is the command's, and the recorded data is kept."""
        change = AT_A_MESSAGE.format(key=key, when=when, number=9)
        environment = changed_package(tmp_path / "changed", change)
        # The child inherited from the shell is not mistaken for the command.
        inner = " ".join(command_line("monitor -q --no-plot -o", SESSION, "sh", "-c", "'echo $$; exit 5'"))
        result = result_of(["sh", "-c", f"true & exec {inner}"], tmp_path, env=environment)
        assert result.returncode == 5
        assert state_of(int(result.stdout)) == ""
        if key == "started":
            assert "no session could be made" in result.stderr
        else:
            session = Session.load(tmp_path / SESSION)
            is_told = any("the sampler was killed" in warning for warning in session.warnings)
            assert (session.exit and session.exit.code, result.stderr) == (5, "")
            assert is_told or key != "exit"

    def test_terminate_when_its_pid_is_not_known(self, tmp_path: Path) -> None:
        """The command of a sampler that died before reporting it can be ended."""
        environment = changed_package(tmp_path / "changed", AT_A_MESSAGE.format(key="started", when="before", number=9))
        parent = "$(cut -d' ' -f4 /proc/$$/stat)"
        wait = f"until grep -q '[-]-no-plot' /proc/{parent}/cmdline; do :; done; kill -TERM {parent}; exec sleep 60"
        words = command_line("monitor -q --no-plot -o", SESSION, "sh", "-c", wait)
        result = result_of(words, tmp_path, env=environment)

        assert result.returncode == 128 + signal.SIGTERM
