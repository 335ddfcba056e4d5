"""What a worker of a Dask cluster does: it runs one configuration in a process of its own, and returns its files."""

from __future__ import annotations

import io
import os
import pathlib
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from typing import TYPE_CHECKING

import msgspec

from nncftools.backports import running
from nncftools.compression.sweep.folder import ROW, stamp
from nncftools.compression.sweep.task import Task
from nncftools.errors import NncfToolsError

if TYPE_CHECKING:
    from collections.abc import Mapping

_TASK = "task.json"
_LOOKS_S = 0.5
_SAID = 300


def lacking(inputs: Mapping[str, str], stamps: Mapping[str, str], digest: str) -> bool:
    """Return whether inputs are neither in a folder that is shared nor were sent here before."""
    return not _received(digest).exists() and not _are_shared(inputs, stamps)


def receive(archive: bytes, digest: str) -> None:
    """Unpack inputs that were sent, once per machine."""
    target = _received(digest)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        inputs = pathlib.Path(name, "inputs")
        unpack(archive, inputs)
        if not target.exists():
            inputs.rename(target)


def work(encoded: bytes, stamps: Mapping[str, str], digest: str) -> bytes:
    """Run a task, and return its folder as an archive. Raises NncfToolsError."""
    task = msgspec.json.decode(encoded, type=Task)
    inputs = task.inputs
    if not _are_shared(inputs, stamps):
        inputs = {name: str(_received(digest) / name / pathlib.Path(path).name) for name, path in inputs.items()}
    python = task.python if pathlib.Path(task.python).exists() else sys.executable
    with tempfile.TemporaryDirectory(prefix="nncf-tools-sweep-") as name:
        folder = pathlib.Path(name)
        task = msgspec.structs.replace(task, folder=name, inputs=inputs, python=python, keep_model=False)
        (folder / _TASK).write_bytes(msgspec.json.encode(task))
        done = subprocess.run(
            [*running(__name__), name], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        if not (folder / ROW).exists():
            raise NncfToolsError(f"{task.name}: exit status {done.returncode}: {done.stderr[-_SAID:].strip()}")
        return packed({"": folder})


def packed(parts: Mapping[str, pathlib.Path]) -> bytes:
    """Return files and folders as an archive, each under its name."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz", compresslevel=1) as archive:
        for name, path in parts.items():
            archive.add(path, arcname=name)
    return content.getvalue()


def unpack(archive: bytes, folder: pathlib.Path) -> None:
    """Unpack an archive; nothing gets out of the folder."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        opened.extractall(folder, filter="data")


def _received(digest: str) -> pathlib.Path:
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(cache, "nncf-tools", "sweep", digest)


def _are_shared(inputs: Mapping[str, str], stamps: Mapping[str, str]) -> bool:
    paths = {name: pathlib.Path(path) for name, path in inputs.items()}
    return all(path.exists() and stamp(path) == stamps[name] for name, path in paths.items())


def _run(folder: pathlib.Path) -> None:
    """Run the task in a folder: in the main thread of a process, because signals need that."""
    from nncftools.cli import measuring
    from nncftools.sampler.starter import Starter

    task = msgspec.json.decode((folder / _TASK).read_bytes(), type=Task)
    with Starter() as starter:
        threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
        row = measuring.run_task(task, starter)
    if row is not None:
        (folder / ROW).write_bytes(msgspec.json.encode(row))


def _end_with(parent: int) -> None:
    """End the task when the worker is gone: nobody would take its files."""
    while os.getppid() == parent:
        time.sleep(_LOOKS_S)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    _run(pathlib.Path(sys.argv[1]))
