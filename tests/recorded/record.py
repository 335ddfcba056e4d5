"""Records the journals of ``tests/data/journals`` anew: ``python -m tests.recorded.record``, on Linux, as root.

The goldens must be written after it: they are of these very recordings. A recording removes its journal and its logs
when it ends, so they are opened while it runs: a mark is not written to a log with a second name. Paths, names and the
machine's identity are replaced; process IDs and figures stay.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import pathlib
import platform
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from typing import BinaryIO

from nncftools.sampler.client import boot_id
from tests.memory_group import MemoryGroup

FOLDER = pathlib.Path(__file__).parents[1] / "data" / "journals"
ENDINGS = (".journal.jsonl", ".marks.jsonl", ".snapshots.jsonl")
ROOT = pathlib.Path(__file__).parents[2]
MIB = 1 << 20

HOLD = "import time; held = bytearray(b'x') * ({mib} << 20); time.sleep({seconds})"
CHILDREN = f"""
import os, signal, subprocess, sys, time
def child(mib, seconds, end=""):
    program = {HOLD!r}.format(mib=mib, seconds=seconds) + end
    return subprocess.Popen([sys.executable, "-S", "-E", "-c", program])
first = child(20, 0.7)
time.sleep(0.3)
second = child(40, 5)
time.sleep(0.3)
third = child(10, 0.4, "; raise SystemExit(3)")
held = bytearray(b"x") * (15 << 20)
first.wait()
time.sleep(0.2)
second.kill()
second.wait()
if os.fork() == 0:
    if os.fork() == 0:
        time.sleep(0.3)
    os._exit(0)
os.wait()
third.wait()
spike = bytearray(b"x") * (60 << 20)
del spike
time.sleep(0.15)
"""
OPERATIONS = """
import os, shutil, subprocess, sys, threading, time
import nncftools
from nncftools import mark_operation, operation
held = []
def take(mib, seconds=0.12):
    held.append(bytearray(b"x") * (mib << 20))
    time.sleep(seconds)
with operation("Model Loading"):
    take(20)
    with operation("Weights"):
        take(30)
with operation("Export"):
    for number in range(3):
        with operation("Trace"):
            take(5, 0.06)
    child = "import time, nncftools\\nwith nncftools.operation('Worker'):\\n held = bytearray(b'x') * (25 << 20)"
    subprocess.run([sys.executable, "-c", child + "; time.sleep(0.2)"], check=True)
    try:
        with operation("Check"):
            raise ValueError("made up: --token=hunter2secret")
    except ValueError:
        pass
for number in range(3):
    shutil.copyfile(sys.argv[0], f"copy-{number}")
failing = "held = bytearray(b'x') * (8 << 20)\\nimport time; time.sleep(0.1)\\nraise MemoryError('made up')"
subprocess.run([sys.executable, "-c", failing], stderr=subprocess.DEVNULL, check=False)
print("Epoch 1", flush=True)
time.sleep(0.1)
print("Epoch 2", flush=True)
subprocess.run([sys.executable, "-m", "nncftools", "mark", "Told by a shell"], check=True)
thread = threading.Thread(target=lambda: operation("Beside")(take)(10, 0.3))
thread.start()
with operation("Compress"):
    take(10, 0.2)
thread.join()
if os.fork() == 0:
    with operation("Forked"):
        take(15)
    os._exit(0)
os.wait()
mark_operation("Saving")
time.sleep(0.12)
mark_operation("Cleaning up")
held.clear()
time.sleep(0.12)
"""
STACKS = """
import threading, time
held = []
def grow(mib):
    for _ in range(mib // 2):
        held.append(bytearray(b"x") * (2 << 20))
        time.sleep(0.008)
def first():
    grow(90)
def second():
    grow(110)
import nncftools
with nncftools.operation("Loading"):
    first()
with nncftools.operation("Folding"):
    thread = threading.Thread(target=second)
    thread.start()
    thread.join()
time.sleep(0.25)
"""
TAKES = """
import time
held = []
for _ in range(200):
    held.append(bytearray(b"x") * (4 << 20))
    time.sleep(0.03)
"""
LATE = """
import time
held = [bytearray(b"x") * (30 << 20)]
time.sleep(0.8)
held.append(bytearray(b"x") * (70 << 20))
time.sleep(0.2)
del held[1:]
time.sleep(1.0)
"""
NESTED = """
import pathlib, time
from nncftools import Profiler
weights = pathlib.Path("weights.bin")
with weights.open("wb") as file:
    file.truncate(80 << 20)
with Profiler():
    time.sleep(0.1)
    with weights.open("rb") as file:
        while file.read(4 << 20):
            time.sleep(0.012)
"""
TESTS = """
import subprocess, sys, time, pytest
def test_small():
    held = bytearray(b"x") * (10 << 20)
    time.sleep(0.1)
def test_large():
    held = bytearray(b"x") * (50 << 20)
    time.sleep(0.1)
def test_child():
    subprocess.run([sys.executable, "-S", "-E", "-c", "held = bytearray(b'x') * (30 << 20); import time; time.sleep(0.2)"])
@pytest.mark.limit_peak("1 MiB")
def test_too_large():
    held = bytearray(b"x") * (20 << 20)
    time.sleep(0.05)
"""  # noqa: E501 — a program


def recorded(
    name: str,
    words: list[str],
    folder: pathlib.Path,
    environment: Mapping[str, str],
    beside: Callable[[pathlib.Path], object] | None,
) -> None:
    """Run a recording and keep its logs; ``beside`` runs in a thread, with the journal's path."""
    kept: dict[str, BinaryIO] = {}
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder), **environment}
    with subprocess.Popen(words, cwd=folder, env=env, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            for found in [*folder.glob("*.jsonl"), *folder.glob("nncf-tools-*/*.jsonl")]:
                ending = "".join(found.suffixes[-2:])
                if ending in kept:
                    continue
                with contextlib.suppress(OSError):
                    kept[ending] = found.open("rb")
                if ending == ENDINGS[0] and beside is not None:
                    threading.Thread(target=beside, args=(found,), daemon=True).start()
            time.sleep(0.005)
    for ending in ENDINGS:
        packed = FOLDER / f"{name}{ending}.gz"
        packed.unlink(missing_ok=True)
        if ending in kept:
            data = neutral(kept[ending].read(), folder)
            packed.write_bytes(gzip.compress(data, mtime=0))
            print(f"{name}{ending}: {data.count(bytes([10]))} lines, {len(data):,} bytes")


def neutral(data: bytes, folder: pathlib.Path) -> bytes:
    """Return a log that names no path, name or identity of this machine."""
    scripts = pathlib.Path(sys.executable).parent
    replaced = {
        str(folder): "/home/user/run",
        str(folder.parent): "/tmp",
        sys.executable: "/usr/bin/python3",
        os.path.realpath(sys.executable): "/usr/bin/python3",
        str(scripts): "/usr/bin",
        str(scripts.parent): "/usr/local",
        str(pathlib.Path(os.path.realpath(sys.executable)).parents[1]): "/usr/local",
        sys.base_prefix: "/usr/local",
        str(ROOT): "/opt/nncf-tools",
        f'"host":{{"name":"{platform.node()}"': '"host":{"name":"box"',
        platform.release(): "6.8.0-generic",
        boot_id() or "-": "00000000-0000-0000-0000-000000000000",
    }
    for group in pathlib.Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines():
        inside = group.rpartition(":")[2]
        if inside != "/":
            replaced[inside] = "/user.slice"
    for old, new in sorted(replaced.items(), key=lambda pair: -len(pair[0])):
        data = data.replace(old.encode(), new.encode())
    return data


def pause_sampler(journal: pathlib.Path) -> None:
    """Stop the sampler for three of its intervals, so that samples are missed."""
    while b'"sampler_pid":' not in journal.read_bytes():
        time.sleep(0.01)
    pid = int(journal.read_bytes().partition(b'"sampler_pid":')[2].split(b"}")[0].split(b",")[0])
    time.sleep(0.4)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(0.35)
    os.kill(pid, signal.SIGCONT)


RECORDINGS = {
    "children": (
        CHILDREN,
        "monitor {saved} -i 0.05 --per-process --wait-all --name children -- {isolated} --token hunter2secret",
    ),
    "operations": (
        OPERATIONS,
        r"profile {saved} -i 0.05 --no-stacks --mark-on 'Epoch \d' --mark-call shutil:copyfile=Copying -- {program}",
    ),
    "stacks": (STACKS, "profile {saved} -i 0.03 --stacks --stacks-budget 50% -- {program}"),
    "limit": (TAKES, "monitor {saved} -i 0.05 --max-memory 60MiB --on-limit kill -- {isolated}"),
    "group": (TAKES, "monitor {saved} -i 0.05 -- sh -c '{enter}; {isolated}; exit $?'"),
    "late": (LATE, "monitor {saved} -i 0.1 -t rss,pss,uss,swap,system --max-memory 90MiB -- {isolated}"),
    "nested": (NESTED, "monitor {saved} -i 0.01 -- {program}"),
    "pytest": (TESTS, "-p no:cacheprovider -c /dev/null --rootdir . --memory --memory-interval 0.04 {tests}"),
}
"""By name: the program that is recorded, and the words that record it."""
JOB = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}


def record(name: str, folder: pathlib.Path) -> None:
    """Make one of the recordings."""
    text, words = RECORDINGS[name]
    path = folder / f"made_{name}.py"
    path.write_text(text, encoding="utf-8")
    parts = {
        "saved": "-q --no-plot -o run.json",
        "program": f"{sys.executable} {path.name}",
        "isolated": f"{sys.executable} -S -E {path.name}",
        "tests": f"--memory-output run.json {path.name}",
    }
    module = "pytest" if name == "pytest" else "nncftools"
    with MemoryGroup("recorded", 80 * MIB) if name == "group" else contextlib.nullcontext() as group:
        command = shlex.split(words.format(enter=group.enter if group else "", **parts))
        beside = (JOB, pause_sampler) if name == "late" else ({}, None)
        recorded(name, [sys.executable, "-m", module, *command], folder, *beside)


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for each in sys.argv[1:] or RECORDINGS:
        with tempfile.TemporaryDirectory() as temporary:
            record(each, pathlib.Path(temporary))
