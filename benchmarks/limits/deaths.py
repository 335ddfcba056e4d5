"""Whether the verdicts on programs that die in known ways are right."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from nncftools.analysis.session import Session
from nncftools.limits import verdict as causes
from nncftools.limits.judges import verdict
from nncftools.units import MemoryUnit
from tests.memory_group import MemoryGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ROOT = pathlib.Path(__file__).parent.parent.parent
_MIB = 1 << 20
_LIMIT = 200 * _MIB
_GROWS = "import time\nheld = []\nwhile True:\n    held.append(b'x' * (4 << 20)); time.sleep(0.01)"
_SEGFAULT = "import ctypes, time; time.sleep(0.3); ctypes.string_at(0)"
_BAD_ALLOC = """
import ctypes, time
new = ctypes.CDLL("libstdc++.so.6")._Znwm
new.restype, new.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
while True:
    ctypes.memset(new(4 << 20), 1, 4 << 20); time.sleep(0.01)
"""
_SLEEPS = "import time; time.sleep(60)"
_FILLS = """
import sys, time
with open(sys.argv[1], "wb", buffering=0) as file:
    for _ in range(100):
        if file.write(b"x" * (1 << 20)) < (1 << 20): raise OSError(28, "No space left on device")
        time.sleep(0.005)
"""
_POOL = """
import multiprocessing, os, time
def work(number):
    if number == 3:
        open(os.environ["GROUP"], "w").write(str(os.getpid()))
        held = []
        while True:
            held.append(b"x" * (4 << 20)); time.sleep(0.01)
    time.sleep(0.1)
    return number
if __name__ == "__main__":
    with multiprocessing.Pool(2) as pool:
        pool.map(work, range(6), chunksize=1)
"""
ALL = frozenset({causes.Certainty.CERTAIN, causes.Certainty.LIKELY, causes.Certainty.POSSIBLE})
_SURE = frozenset({causes.Certainty.CERTAIN})


class Row(NamedTuple):
    """A way to die."""

    told: str
    run: Callable[[pathlib.Path], pathlib.Path]
    """Runs it in a folder, and returns the session or the journal."""
    cause: str | None
    certainties: frozenset[str] = ALL


def _start(folder: pathlib.Path, command: list[str], *options: str, kind: str = "monitor") -> subprocess.Popen[bytes]:
    ours = [sys.executable, "-m", "nncftools", kind, "-q", "--force", "-o", str(folder / "run.json"), *options, "--"]
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    return subprocess.Popen([*ours, *command], env=environment, cwd=folder, stderr=subprocess.DEVNULL)


def _record(folder: pathlib.Path, command: list[str], *options: str, kind: str = "monitor") -> pathlib.Path:
    _start(folder, command, *options, kind=kind).wait()
    return folder / "run.json"


def _python(code: str, *words: str) -> list[str]:
    return [sys.executable, "-c", code, *words]


def _shell(script: str, *words: str) -> list[str]:
    return ["sh", "-c", script, sys.executable, "-c", _GROWS, *words]


def _in_group(folder: pathlib.Path) -> pathlib.Path:
    with MemoryGroup("death", _LIMIT) as group:
        return _record(folder, _shell(f'{group.enter}; exec "$0" "$@"'))


def _child(folder: pathlib.Path) -> pathlib.Path:
    with MemoryGroup("death", _LIMIT) as group:
        inner = f'{group.enter}; exec "$0" "$@"'
        return _record(folder, _shell(f'sh -c \'{inner}\' "$0" "$@"; true'))


def _tree(folder: pathlib.Path) -> pathlib.Path:
    with MemoryGroup("death", _LIMIT) as group:
        return _record(folder, _shell(f'{group.enter}; "$0" "$@" & "$0" "$@" & "$0" "$@" & wait; exit 1'))


def _sampler_too(folder: pathlib.Path) -> pathlib.Path:
    """Make the kernel choose the sampler first, then the command."""
    with MemoryGroup("death", _LIMIT) as group:
        recording = _start(folder, _shell(f'{group.enter}; sleep 1; exec "$0" "$@"'))
        sampler = _child_of(recording.pid)
        pathlib.Path(f"/proc/{sampler}/oom_score_adj").write_text("1000")
        group.write("cgroup.procs", sampler)
        recording.wait()
    return folder / "run.json"


def _all_at_once(folder: pathlib.Path) -> pathlib.Path:
    """Kill everything when the limit is almost reached, as a container dies; only the journal is left."""
    with MemoryGroup("death", _LIMIT) as group:
        recording = _start(folder, _shell(f'{group.enter}; exec "$0" "$@"'), "--interval", "0.02")
        sampler = _child_of(recording.pid)
        until_s = time.monotonic() + 30
        while group.used() < _LIMIT * 0.93 and time.monotonic() < until_s:
            time.sleep(0.002)
        for pid in (recording.pid, sampler, *group.pids()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        recording.wait()
    return folder / "run.journal.jsonl"


def _child_of(pid: int) -> int:
    until_s = time.monotonic() + 30
    while time.monotonic() < until_s:
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if children:
            return int(children[0])
        time.sleep(0.01)
    raise RuntimeError("no sampler was started")


def _signalled(folder: pathlib.Path, number: int, code: str = _GROWS) -> pathlib.Path:
    recording = _start(folder, _python(code))
    command = _child_of(_child_of(recording.pid))
    time.sleep(1)
    os.kill(command, number)
    recording.wait()
    return folder / "run.json"


def _max_memory(folder: pathlib.Path) -> pathlib.Path:
    return _record(folder, _python(_GROWS), "--max-memory", "200MiB", "--on-limit", "kill")


def _address_space(folder: pathlib.Path, kind: str) -> pathlib.Path:
    return _record(folder, _shell('ulimit -v 300000; exec "$0" "$@"'), kind=kind)


def _bad_alloc(folder: pathlib.Path) -> pathlib.Path:
    """Make C++'s operator new throw, which nobody catches."""
    return _record(folder, ["sh", "-c", 'ulimit -v 200000; ulimit -c 0; exec "$0" "$@"', *_python(_BAD_ALLOC)])


def _full_disk(folder: pathlib.Path, kind: str) -> pathlib.Path:
    with _small_disk(folder / "disk") as disk:
        return _record(folder, _python(_FILLS, str(disk / "model.bin")), kind=kind)


@contextlib.contextmanager
def _small_disk(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "nncf-tools-test", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def _pool(folder: pathlib.Path) -> pathlib.Path:
    with MemoryGroup("death", _LIMIT) as group:
        script = 'GROUP="$1" exec "$0" -c "$2"'
        words = ["sh", "-c", script, sys.executable, str(group.folder / "cgroup.procs"), _POOL]
        recording = _start(folder, words, "--duration", "6")
        time.sleep(7)
        recording.terminate()
        recording.wait()
    return folder / "run.json"


ROWS = {
    "group": Row("killed in a limited group", _in_group, causes.Cause.OUT_OF_MEMORY, _SURE),
    "child": Row("a child killed there, the command says 0", _child, causes.Cause.OUT_OF_MEMORY, _SURE),
    "tree": Row("the whole tree there", _tree, causes.Cause.OUT_OF_MEMORY, _SURE),
    "sampler": Row("the sampler there, too", _sampler_too, causes.Cause.OUT_OF_MEMORY, _SURE),
    "all": Row("everything at once, only the journal is left", _all_at_once, causes.Cause.LOST),
    "sigkill": Row("kill -9", lambda folder: _signalled(folder, signal.SIGKILL), causes.Cause.KILLED, _SURE),
    "max_memory": Row("--max-memory", _max_memory, causes.Cause.MAX_MEMORY, _SURE),
    "memory_error": Row("MemoryError, ulimit -v", lambda at: _address_space(at, "monitor"), None),
    "python_error": Row("the same, profile", lambda at: _address_space(at, "profile"), causes.Cause.ALLOCATION, _SURE),
    "bad_alloc": Row("std::bad_alloc, ulimit -v", _bad_alloc, causes.Cause.CRASHED, _SURE),
    "full_disk": Row("disk full", lambda at: _full_disk(at, "monitor"), causes.Cause.DISK_FULL),
    "python_disk": Row("disk full, profile", lambda at: _full_disk(at, "profile"), causes.Cause.DISK_FULL, _SURE),
    "segfault": Row("segmentation fault", lambda at: _record(at, _python(_SEGFAULT)), causes.Cause.CRASHED, _SURE),
    "sigterm": Row("SIGTERM", lambda at: _signalled(at, signal.SIGTERM, _SLEEPS), causes.Cause.TERMINATED, _SURE),
    "pool": Row("a worker killed, the pool hangs", _pool, causes.Cause.OUT_OF_MEMORY, _SURE),
    "failure": Row("ordinary failure", lambda at: _record(at, _python("raise SystemExit(3)")), None),
    "exception": Row("ordinary exception", lambda at: _record(at, _python("1 / 0"), kind="profile"), None),
    "success": Row("success", lambda at: _record(at, _python("pass")), None),
}
NEED_ROOT = {"group", "child", "tree", "sampler", "all", "pool", "full_disk", "python_disk"}


def judge(folder: pathlib.Path, runs: int, only: str | None) -> int:
    """Print a row for each way to die; return how many verdicts are wrong."""
    print("| death | verdict | right |")
    print("|---|---|---:|")
    all_wrong = 0
    for name, row in ROWS.items():
        if only in {None, name}:
            said, right = "", 0
            for number in range(runs):
                place = folder / f"{name}-{number}"
                place.mkdir()
                found, is_right = judged(row, place)
                if is_right:
                    right += 1
                if not is_right or not said:
                    said = found
            all_wrong += runs - right
            print(f"| {row.told} | {said} | {right} of {runs} |", flush=True)
    return all_wrong


def judged(row: Row, folder: pathlib.Path) -> tuple[str, bool]:
    """Run a row in an empty folder; return its verdict, and whether that is right."""
    found = verdict(Session.load(row.run(folder)), MemoryUnit.MiB)
    if found is None:
        return "none", row.cause is None
    is_right = found.cause == row.cause and found.certainty in row.certainties
    return f"{found.cause} ({found.certainty})", is_right
