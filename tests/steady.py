"""Run the test suite repeatedly, beside programs that burn CPU, and list how often each test failed.

    python -m tests.steady --runs 10 --busy 2 -- tests/cli -x

Everything after ``--`` goes to pytest. Ends with 1 if any run failed.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
_BURNS = [sys.executable, "-S", "-E", "-c", "while True: pass"]
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


def main() -> int:
    """Run as often as requested, report each run, then list the failures."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.steady", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="how often (default: 3)")
    parser.add_argument("--busy", type=int, default=0, metavar="N", help="number of programs that burn CPU")
    parser.add_argument("words", nargs="*", help="for pytest, after --")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends the busy programs, too
    failures = Counter[str]()
    with contextlib.ExitStack() as stack:
        for _ in range(options.busy):
            program = subprocess.Popen(_BURNS, start_new_session=True)  # like another user's work
            stack.callback(program.kill)
        for number in range(1, options.runs + 1):
            words = [sys.executable, "-m", "pytest", "-q", *options.words]
            done = subprocess.run(
                words, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
            )
            print(f"run {number}: {done.stdout.rstrip().splitlines()[-1:]}", flush=True)
            if done.returncode:
                print(done.stdout, done.stderr, flush=True)
                failures.update(_FAILED.findall(done.stdout) or [f"(pytest ended with status {done.returncode})"])
    for name, times in failures.most_common():
        print(f"{times:4}  {name}")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
