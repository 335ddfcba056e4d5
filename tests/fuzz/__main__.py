"""``python -m tests.fuzz --seconds 60 --seed 1``: damages real files and reads them, until the time is over.

A failure is an error that is not ours, more than 10 seconds of CPU time (and 10 for each MB), 30 seconds of waiting, or
more than 300 MB of memory. The file is kept, reduced to what provokes the failure. The same seed gives the same files
in the same order.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import faulthandler
import gc
import itertools
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis

from tests.fuzz import corpus, damage, outputs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fuzz.corpus import Sample

CPU_S, CPU_S_PER_MB, WAITING_S = 10.0, 10.0, 30.0
"""A case makes some fifteen outputs of a file; each command took at most 1.5 s."""
MOST_MB = 300
_BATCH = 40
"""Cases of one process."""
_MB = 10**6


class TooMuchError(Exception):
    """A case took too long or too much memory."""


def main() -> int:
    """Run; return 1 after a failure."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Damage real files and read them.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "nncf-tools-fuzz")
    parser.add_argument("--only", default="", help="only samples whose names contain this")
    given = parser.parse_args()
    every = [sample for sample in corpus.samples() if given.only in sample.name]
    print(f"{len(every)} files; seed {given.seed}", flush=True)
    began_s = time.monotonic()
    counts: Counter[str] = Counter()
    failures: dict[str, str] = {}
    gc.freeze()
    for batch, sample in enumerate(itertools.cycle(every)):
        found = _in_a_process(sample, given.seed * 1_000_000 + batch, given.keep)
        counts.update(found["counts"])
        counts[f"of {sample.name}"] += found["counts"].get("cases", 0)
        counts["most MB"] = max(counts["most MB"], found["most"])
        failure = found["failure"]
        if failure and failure not in failures:
            failures[failure] = found["file"]
            where = f"(--seed {given.seed}, batch {batch}), kept in {found['file']}"
            print(f"\nFAILED {sample.name} {where}:\n{found['text']}", flush=True)
        if time.monotonic() - began_s > given.seconds:
            break
    read = f"{counts.pop('cases'):,} files in {given.seconds:.0f} s, {counts.pop('read'):,} of them could be read"
    print(f"\n{read}; at most {counts.pop('most MB')} MB; {len(failures)} failures")
    for name, number in counts.items():
        print(f"  {number:>8,}  {name.removeprefix('of ')}")
    for failure, file in failures.items():
        print(f"FAILED: {failure}: {file}")
    return 1 if failures else 0


def _in_a_process(sample: Sample, seed: int, keep: Path) -> dict[str, Any]:
    """Try some damaged copies of a sample in a fork of this process."""
    reading, writing = os.pipe()
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        status = 1
        try:
            with os.fdopen(writing, "w") as pipe:
                json.dump(_Batch(sample, seed, folder).run(), pipe)
            status = 0
        except BaseException:  # noqa: BLE001 — whatever happens, the fork must not go on as its parent
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    found: dict[str, Any] = json.loads(text) if text else {}
    found = found or {"counts": {"cases": 1}, "most": 0, "failure": "the process ended", "text": "see above"}
    if found["failure"]:
        kept = keep / f"{seed}-{sample.name}"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(folder, kept)
        found["file"] = str(kept)
    shutil.rmtree(folder)
    return found


class _Batch:
    """Some damaged copies of a sample."""

    def __init__(self, sample: Sample, seed: int, folder: Path) -> None:
        self._sample, self._seed, self._folder = sample, seed, folder
        self._counts: Counter[str] = Counter()
        self._most = 0

    def run(self) -> dict[str, Any]:
        signal.signal(signal.SIGPROF, _too_long)
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
        warnings.simplefilter("ignore")
        failure = text = ""
        slow = outputs.SLOW[self._seed % len(outputs.SLOW)]

        @hypothesis.seed(self._seed)
        @hypothesis.settings(
            max_examples=_BATCH,
            deadline=None,
            database=None,
            print_blob=False,
            report_multiple_bugs=False,
            suppress_health_check=list(hypothesis.HealthCheck),
            phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        )
        @hypothesis.given(damage.damaged(self._sample.content))
        def case(content: bytes) -> None:
            self._try(dataclasses.replace(self._sample, content=content), slow)

        try:
            case()
        except Exception as error:  # noqa: BLE001 — any error is what we look for
            last = traceback.extract_tb(error.__traceback__)[-1]
            failure = f"{type(error).__name__} in {Path(last.filename).name}:{last.lineno} {last.name}"
            if isinstance(error, TooMuchError):
                failure = f"{failure} ({self._sample.name})"
            text = "".join(traceback.format_exception(error)[-12:])
        return {"counts": self._counts, "most": self._most, "failure": failure, "text": text}

    def _try(self, sample: Sample, slow: str) -> None:
        for left in self._folder.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        for name, content in {**sample.beside, sample.name: sample.content}.items():
            (self._folder / name).write_bytes(content)
        self._counts["cases"] += 1
        gc.collect(2 if _high_water_mark() > MOST_MB / 2 else 0)  # what a large file left is not the next one's
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        with _timed(CPU_S + CPU_S_PER_MB * len(sample.content) / _MB):
            self._counts["read"] += outputs.read_and_show(sample, self._folder, slow)
        most = _high_water_mark()
        self._most = max(self._most, most)
        if most > MOST_MB:
            raise TooMuchError(f"{most} MB")


@contextlib.contextmanager
def _timed(cpu_s: float) -> Iterator[None]:
    """Raise TooMuchError after so much CPU time, end the process after 30 s more: it waits for something."""
    faulthandler.dump_traceback_later(cpu_s + WAITING_S, exit=True)
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        faulthandler.cancel_dump_traceback_later()


def _too_long(_number: int, _frame: object) -> None:
    raise TooMuchError("too much CPU time")


def _high_water_mark() -> int:
    """Return the largest memory since it was last reset, in MB."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    return int(text.partition("VmHWM:")[2].split()[0]) * 1024 // _MB


if __name__ == "__main__":
    sys.exit(main())
