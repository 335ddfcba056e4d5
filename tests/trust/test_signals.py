from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nncftools.sampler.target import CAUGHT
from tests.conftest import HANGING_S, Run
from tests.trust.recorder import SESSION, Recorder, result_of, signalled_at

pytestmark = [pytest.mark.process, pytest.mark.long]

STOPPING = {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
TO_GROUP = sorted(signal.valid_signals() - STOPPING - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD})
LAST = signal.SIGRTMAX
"""Sent to the command line alone, it arrives after all signals that had to be passed on."""
INTERNAL = 0b11 << 31
"""Signals 32 and 33 are reserved for glibc."""
AFTER_THE_END = (
    "nncftools.session.recording.session_from",
    "nncftools.session.session.save",
    "nncftools.render.text.report",
    pytest.param("nncftools.render.panels.draw", marks=pytest.mark.long),
    "exit",
)


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    """Record a command that logs its signals."""
    recorder = Recorder(tmp_path)
    yield recorder
    recorder.go()
    recorder.process.kill()
    recorder.process.wait()


class TestOnce:
    def test_group(self, recorder: Recorder) -> None:
        """Every signal sent to the group reaches the command once, and ends neither command line nor sampler."""
        expected = [number for number in TO_GROUP if number != LAST]
        for number in expected:
            os.killpg(recorder.process.pid, number)
        recorder.until_noted(*expected)
        recorder.process.send_signal(LAST)
        recorder.until_noted(LAST)

        assert sorted(recorder.noted()) == sorted([*expected, LAST])
        assert recorder.status() == 9
        assert recorder.session().finished

    def test_command_line(self, recorder: Recorder) -> None:
        """Every signal that would end the command line, sent to it alone, reaches the command once."""
        for number in CAUGHT:
            recorder.process.send_signal(number)
        recorder.until_noted(*CAUGHT)
        recorder.until_sampled()

        assert sorted(recorder.noted()) == sorted(CAUGHT)
        assert recorder.status() == 9


@pytest.mark.parametrize("leave, times", [("os.setpgid(0, 0)", 1), ("os.setsid()", 0)])
def test_group_of_its_own(tmp_path: Path, leave: str, times: int) -> None:
    """A command that makes its own group still gets our group's signals; one in its own session does not."""
    script = f"import os, sys; {leave}; os.execv(sys.argv[1], sys.argv[1:])"
    recorder = Recorder(tmp_path, sys.executable, "-S", "-c", script)
    os.killpg(recorder.process.pid, signal.SIGINT)
    recorder.until_sampled()
    recorder.process.send_signal(LAST)
    recorder.until_noted(LAST)

    assert recorder.noted() == [*[signal.SIGINT] * times, LAST]
    assert recorder.status() == 9


def dispositions(text: str) -> list[int]:
    """Return the blocked and ignored signals, as proc(5) shows them."""
    return [int(line.split()[1], 16) & ~INTERNAL for line in text.splitlines()]


class TestGiven:
    @pytest.mark.parametrize(
        "ignored, blocked",
        [
            ([signal.SIGCHLD], []),
            ([], [signal.SIGCHLD]),
            ([signal.SIGCHLD, signal.SIGSEGV, signal.SIGUSR1], [signal.SIGTERM, signal.SIGCHLD, 40]),
            ([signal.SIGFPE, signal.SIGHUP], [signal.SIGUSR2, signal.SIGSEGV]),
        ],
    )
    def test_dispositions_and_status(self, nncf_tools: Run, ignored: list[int], blocked: list[int]) -> None:
        """The command inherits our ignored and blocked signals, and its exit status is still known."""

        def give() -> None:
            for number in ignored:
                signal.signal(number, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

        words = ["sh", "-c", "grep -E 'Sig(Ign|Blk)' /proc/self/status; exit 5"]
        alone = subprocess.run(words, preexec_fn=give, capture_output=True, text=True, check=False)
        result = nncf_tools("monitor -q --no-plot -o", SESSION, "--", *words, preexec_fn=give)

        assert (result.returncode, result.stderr) == (5, "")
        assert dispositions(result.stdout) == dispositions(alone.stdout)


SAVING = ("nncftools.session.recording.session_from", "nncftools.session.session.save")


class TestAfterTheEnd:
    @pytest.mark.parametrize("place", AFTER_THE_END)
    def test_status_is_the_commands(self, tmp_path: Path, place: str) -> None:
        """Signals during the saving and showing of results, or at exit, do not change the exit status.

        The second one stops saving, and the journal stays.
        """
        numbers = [signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1, signal.SIGSEGV]
        drawn = "--plot" if "pictures" in place else "--no-plot"
        words = signalled_at(place, numbers, "monitor", "-o", SESSION, drawn, "--", "sh", "-c", "exit 7")
        result = result_of(words, tmp_path)

        assert result.returncode == 7
        assert "Traceback" not in result.stderr
        assert (tmp_path / ("run.journal.jsonl" if place in SAVING else SESSION)).exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_before_the_start(tmp_path: Path, number: int) -> None:
    """A termination signal before the command starts is obeyed: the command is not started."""
    words = signalled_at(
        "nncftools.sampler.client.make_header", [number], "monitor", "-q", "-o", SESSION, "--", "touch", "ran"
    )
    result = result_of(words, tmp_path)

    assert result.returncode == 128 + number
    assert len(result.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("in_this_thread", [True, False])
def test_while_the_sampler_starts(tmp_path: Path, *, in_this_thread: bool) -> None:
    """A signal during the sampler's start reaches the command, whichever of our threads gets it."""
    number = signal.SIGTERM
    words = ("monitor", "-q", "--no-plot", "-o", SESSION, "sleep", "60")
    program = signalled_at(
        f"{'this thread ' * in_this_thread}nncftools.sampler.client._list_children", [number], *words
    )
    result = subprocess.run(program, cwd=tmp_path, check=False, timeout=HANGING_S)

    assert result.returncode == 128 + number
