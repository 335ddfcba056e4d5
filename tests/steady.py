"""Run the test suite repeatedly under hard conditions, and list how often each test failed.

    python -m tests.steady --runs 10 --busy 2
    python -m tests.steady --runs 3 --signals-ignored --user nobody -- tests/cli -x

Everything after ``--`` goes to pytest. Ends with 1 if any run failed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import pwd
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

HANGING_S = 1800
ROOT = pathlib.Path(__file__).parents[1]


class Run(NamedTuple):
    """The outcome of one run of the suite."""

    status: int
    seconds: float
    cpu_s: float
    last_line: str
    failed: Sequence[str]


def main() -> int:
    """Run as often as requested, report each run, then list the failures."""
    options, words = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends the busy loops, too
    failures: Counter[str] = Counter()
    green = 0
    with _busy(options.busy):
        for number in range(1, options.runs + 1):
            run = _run(options, words)
            failures.update(run.failed)
            green += run.status == 0
            print(f"run {number}: {run.seconds:.0f} s, {run.cpu_s:.0f} s of CPU: {run.last_line}", flush=True)
            for name in run.failed:
                print(f"  {name}", flush=True)
    print(f"\n{green} of {options.runs} runs green")
    for name, times in failures.most_common():
        print(f"{times:4}  {name}")
    return 0 if green == options.runs else 1


def _options() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(prog="python -m tests.steady", description=__doc__, formatter_class=_Formatter)
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="how often (default: 3)")
    parser.add_argument("--busy", type=int, default=0, metavar="N", help="number of loops that burn CPU meanwhile")
    parser.add_argument("--signals-ignored", action="store_true", help="with SIGINT, SIGHUP and SIGQUIT ignored")
    parser.add_argument("--user", help="as this user (root only)")
    parser.add_argument("--nice", type=int, default=0, metavar="N", help="at this niceness")
    given = sys.argv[1:]
    here = given.index("--") if "--" in given else len(given)
    options = parser.parse_args(given[:here])
    if options.runs < 1:
        parser.error("--runs: a number from 1 on expected")
    if options.user is not None and options.user not in {entry.pw_name for entry in pwd.getpwall()}:
        parser.error(f"--user: there is no user {options.user!r}")
    return options, given[here + 1 :]


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Restores the examples."""


@contextlib.contextmanager
def _busy(number: int) -> Iterator[None]:
    """Burn CPU in a separate session, like another user's work."""
    words = [sys.executable, "-S", "-E", "-c", "while True: pass"]
    loops = [subprocess.Popen(words, start_new_session=True) for _ in range(number)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def _run(options: argparse.Namespace, words: list[str]) -> Run:
    with tempfile.TemporaryDirectory(prefix="steady-") as name:
        folder = pathlib.Path(name)
        environment = {**os.environ, "TMPDIR": name}
        identity: dict[str, Any] = {}
        if options.user is not None:
            entry = pwd.getpwnam(options.user)
            os.chown(folder, entry.pw_uid, entry.pw_gid)
            identity = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
            environment.update(HOME=name, USER=options.user, LOGNAME=options.user)
        result = folder / "result.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={result}", "-o", f"cache_dir={folder / 'cache'}"]
        begin, cpu_begin = time.monotonic(), _cpu_of_children()
        with (folder / "output.txt").open("w+") as output:
            try:
                process = subprocess.Popen(
                    [*command, *words],
                    cwd=ROOT,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=lambda: _condition(options),  # noqa: PLW1509 — this process has one thread
                    **identity,
                )
            except PermissionError:
                text = (
                    f"--user {options.user}: may not run {sys.executable}: use a virtual environment of another Python"
                )
                raise SystemExit(text) from None
            try:
                status = process.wait(HANGING_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                status = process.wait()
            output.seek(0)
            lines = [line.strip() for line in output if line.strip()]
        seconds, cpu_s = time.monotonic() - begin, _cpu_of_children() - cpu_begin
        if status != 0:
            print(f"  its output: {_kept(folder / 'output.txt')}")
        return Run(status, seconds, cpu_s, lines[-1] if lines else "no output", _failed(result, status))


def _condition(options: argparse.Namespace) -> None:
    """Set the conditions that a started process inherits."""
    if options.signals_ignored:
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
    os.nice(options.nice)


def _kept(output: pathlib.Path) -> pathlib.Path:
    """Save the output of a run; return its path."""
    kept = pathlib.Path(tempfile.gettempdir()) / f"steady-failed-{os.getpid()}-{time.strftime('%H%M%S')}.txt"
    kept.write_bytes(output.read_bytes())
    return kept


def _cpu_of_children() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _failed(result: pathlib.Path, status: int) -> list[str]:
    """Return the failed tests, or another reason for failure."""
    if not result.exists():
        return [f"(pytest ended with status {status} before its report)"] if status else []
    cases = ET.parse(result).iter("testcase")  # noqa: S314 — our own file
    bad = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    return [f"{case.get('classname')}::{case.get('name')}" for case in bad] or (
        [f"(pytest ended with status {status})"] if status else []
    )


if __name__ == "__main__":
    sys.exit(main())
