"""Runs the configurations of a sweep on a Dask cluster, one at a time on each worker.

A worker runs its configuration in a process of its own, and returns its files.
"""

from __future__ import annotations

import functools
import hashlib
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
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from nncftools.backports import running
from nncftools.cli import screen
from nncftools.cli.series import Runner, runner
from nncftools.cli.sweep.results import ROW, Folder, Row, files_of, stamp
from nncftools.cli.sweep.steps import Task, run_task
from nncftools.errors import NncfToolsError, UsageError
from nncftools.sampler.client import Interrupted, held_back

_TASK = "task.json"
_CHECKS_S = 0.5
_SAID = 300


def lacking(inputs: Mapping[str, str], stamps: Mapping[str, str], digest: str) -> bool:
    """Return whether this machine lacks inputs: they are in no shared folder, and were not sent here before."""
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
        words, nothing = [*running(__name__), name], subprocess.DEVNULL
        done = subprocess.run(words, capture_output=True, text=True, check=False, stdin=nothing)
        if not (folder / ROW).exists():
            raise NncfToolsError(f"{task.row.name}: exit status {done.returncode}: {done.stderr[-_SAID:].strip()}")
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
    paths = ((pathlib.Path(path), stamps[name]) for name, path in inputs.items())
    return all(path.exists() and stamp(path) == expected for path, expected in paths)


def _run(folder: pathlib.Path) -> None:
    """Run the task in a folder: in the main thread of a process, because signals need that."""
    task = msgspec.json.decode((folder / _TASK).read_bytes(), type=Task)
    with runner() as task_runner:
        threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
        row = run_task(task, task_runner)
        (folder / ROW).write_bytes(msgspec.json.encode(row))


def _end_with(parent: int) -> None:
    """End the task when the worker is gone: nobody would take its files."""
    while os.getppid() == parent:
        time.sleep(_CHECKS_S)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    _run(pathlib.Path(sys.argv[1]))


_CONNECTS_S = 20
_LOOKS_S = 0.2
_ANSWERS_S, _SENDS_S, _CANCELS_S = 60, 3600, 5
_MOST_TRIES = 3
_DIGEST = 16


class Cluster:
    """Runs tasks on the workers of a cluster; workers may come and go."""

    def __init__(self, address: str, folder: Folder, runner: Runner) -> None:
        """Connect to the scheduler. Raises UsageError if that is impossible."""
        try:
            import distributed
        except ImportError as error:
            raise UsageError("option --scheduler: Dask is not installed: pip install 'nncf-tools[dask]'") from error
        self._folder = folder
        self._runner = runner
        self._tries = Counter[str]()
        self._stamp = functools.cache(stamp)
        """Inputs do not change during a sweep."""
        try:
            self._client: Any = distributed.Client(address, timeout=_CONNECTS_S, set_as_default=False)
        except (OSError, ValueError) as error:
            raise UsageError(f"option --scheduler: {address!r} cannot be reached: {error}") from error

    def run(self, tasks: Sequence[Task], ended: Callable[[Row], None]) -> None:
        """Run tasks, and give each row to ``ended`` as soon as it is there. Raises NncfToolsError, Interrupted.

        A task whose worker is lost runs again on another one.
        """
        running: dict[str, tuple[Task, Any]] = {}
        try:
            with self._runner.starter.interruptible():  # Dask waits for up to an hour
                self._run(list(tasks), running, ended)
            self._runner.check()
        except Interrupted:
            futures = [future for _, future in running.values()]
            cancels = threading.Thread(target=self._client.cancel, args=[futures], kwargs={"force": True}, daemon=True)
            with held_back():
                cancels.start()
            cancels.join(_CANCELS_S)  # the scheduler may hang
            raise

    def _run(self, waiting: list[Task], running: dict[str, tuple[Task, Any]], ended: Callable[[Row], None]) -> None:
        while (waiting or running) and not self._runner.is_interrupted():
            workers = set(self._client.scheduler_info(n_workers=-1)["workers"])
            for worker, (task, future) in list(running.items()):
                if worker in workers and not future.done():
                    continue
                del running[worker]
                if future.status == "finished":
                    ended(self._taken(task, future))
                else:
                    self._check_tries(task, self._why(future, is_there=worker in workers))
                    future.cancel()
                    waiting.insert(0, task)
            for worker in sorted(workers - set(running))[: len(waiting)]:
                task = waiting.pop(0)
                screen.line(f"Running {task.row.name} on {worker}…")
                running[worker] = task, self._submitted(task, worker)
            time.sleep(_LOOKS_S)

    def _check_tries(self, task: Task, why: str) -> None:
        name = task.row.name
        self._tries[name] += 1
        if self._tries[name] >= _MOST_TRIES:
            raise NncfToolsError(f"{name} failed {_MOST_TRIES} times on the cluster: {why}")
        screen.line(f"{name}: {why}; it runs again")

    def _submitted(self, task: Task, worker: str) -> Any:  # noqa: ANN401 — Dask's
        """Send inputs if the worker does not have them, and return the future of the task."""
        stamps, digest = self._stamps(task.inputs)
        where = {"workers": [worker], "allow_other_workers": False, "pure": False}
        lacks = self._client.submit(lacking, task.inputs, stamps, digest, **where)
        if lacks.result(timeout=_ANSWERS_S):
            files = [(name, file) for name, path in task.inputs.items() for file in files_of(pathlib.Path(path))]
            parts = {f"{name}/{file.name}": file for name, file in files}
            archive = self._client.scatter(packed(parts), workers=[worker], hash=False)
            self._client.submit(receive, archive, digest, **where).result(timeout=_SENDS_S)
        return self._client.submit(work, msgspec.json.encode(task), stamps, digest, **where)

    def _taken(self, task: Task, future: Any) -> Row:  # noqa: ANN401 — Dask's
        """Put the files of a task where they would be if it had run here, and return its row."""
        target = self._folder.clear(task.row.name)
        with tempfile.TemporaryDirectory(dir=target.parent) as name:
            folder = pathlib.Path(name, "task")
            unpack(future.result(), folder)
            row = msgspec.json.decode((folder / ROW).read_bytes(), type=Row)
            target.rmdir()
            folder.rename(target)
        return row

    @staticmethod
    def _why(future: Any, *, is_there: bool) -> str:  # noqa: ANN401 — Dask's
        if not is_there:
            return "its worker is lost"
        error = future.exception() if future.status == "error" else future.status
        return f"its worker failed: {error}"

    def _stamps(self, inputs: Mapping[str, str]) -> tuple[dict[str, str], str]:
        """Return the stamp of each input, and one digest of all."""
        stamps = {name: self._stamp(pathlib.Path(path)) for name, path in inputs.items()}
        return stamps, hashlib.sha256(repr(sorted(stamps.items())).encode()).hexdigest()[:_DIGEST]
