"""Run the configurations of a sweep on a Dask cluster, one at a time on each worker.

A worker runs each configuration in a new process, and returns the files.
"""

from __future__ import annotations

import functools
import hashlib
import io
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from nncftools.backports import running
from nncftools.cli import screen
from nncftools.cli.series import Runner, runner
from nncftools.cli.sweep.results import ROW, SweepFolder, SweepRow, list_files, make_stamp
from nncftools.cli.sweep.steps import Task, run_task
from nncftools.errors import NncfToolsError, UsageError
from nncftools.sampler.client import Interrupted, held_back

_TASK = "task.json"
_CHECKS_S = 0.5
_LONGEST_ERROR = 300


def lacks_inputs(inputs: Mapping[str, str], stamps: Mapping[str, str], digest: str) -> bool:
    """Return whether this machine has the inputs neither in a shared folder nor in the cache."""
    return not _cache_folder(digest).exists() and not _are_shared(inputs, stamps)


def receive(archive: bytes, digest: str) -> None:
    """Unpack inputs from the sweep into the cache, once per machine."""
    target = _cache_folder(digest)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        inputs = Path(name, "inputs")
        unpack(archive, inputs)
        if not target.exists():
            inputs.rename(target)


def work(encoded: bytes, stamps: Mapping[str, str], digest: str) -> bytes:
    """Run a task, and return the folder of the task as an archive. Raises NncfToolsError."""
    task = msgspec.json.decode(encoded, type=Task)
    inputs = task.inputs
    if not _are_shared(inputs, stamps):
        cache = _cache_folder(digest)
        names = {name: Path(path).name for name, path in inputs.items()}
        inputs = {name: str(cache / name / file) for name, file in names.items()}
    python = task.python if Path(task.python).exists() else sys.executable
    with tempfile.TemporaryDirectory(prefix="nncf-tools-sweep-") as name:
        folder = Path(name)
        task = msgspec.structs.replace(
            task,
            folder=name,
            inputs=inputs,
            python=python,
            keep_model=False,
        )
        (folder / _TASK).write_bytes(msgspec.json.encode(task))
        words = [*running(__name__), name]
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if not (folder / ROW).exists():
            error = done.stderr[-_LONGEST_ERROR:].strip()
            raise NncfToolsError(f"{task.row.name}: exit status {done.returncode}: {error}")
        return pack({"": folder})


def pack(parts: Mapping[str, Path]) -> bytes:
    """Return an archive of files and folders, by name in the archive."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz", compresslevel=1) as archive:
        for name, path in parts.items():
            archive.add(path, arcname=name)
    return content.getvalue()


def unpack(archive: bytes, folder: Path) -> None:
    """Unpack an archive; refuse paths outside the folder."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        opened.extractall(folder, filter="data")


def _cache_folder(digest: str) -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "nncf-tools", "sweep", digest)


def _are_shared(inputs: Mapping[str, str], stamps: Mapping[str, str]) -> bool:
    if not all(map(Path.exists, map(Path, inputs.values()))):
        return False
    return stamps == {name: make_stamp(path) for name, path in inputs.items()}


def _run(folder: Path) -> None:
    """Run the task in a folder, in the main thread of a process, because signals need the main thread."""
    task = msgspec.json.decode((folder / _TASK).read_bytes(), type=Task)
    with runner() as task_runner:
        ends = threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True)
        ends.start()
        row = run_task(task, task_runner)
        (folder / ROW).write_bytes(msgspec.json.encode(row))


def _end_with(parent: int) -> None:
    """End the task when the worker has ended, because nobody would take the files."""
    while os.getppid() == parent:
        time.sleep(_CHECKS_S)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    _run(Path(sys.argv[1]))


_CONNECT_TIMEOUT_S = 20
_POLL_S = 0.2
_ANSWER_TIMEOUT_S = 60
_SEND_TIMEOUT_S = 3600
_CANCEL_TIMEOUT_S = 5
_MOST_TRIES = 3
_DIGEST = 16


class Cluster:
    """Runs tasks on the workers of a cluster; workers may come and go."""

    def __init__(self, address: str, folder: SweepFolder, runner: Runner) -> None:
        """Connect to the scheduler. Raises UsageError if that is impossible."""
        try:
            import distributed
        except ImportError as error:
            raise UsageError("option --scheduler: Dask is not installed: pip install 'nncf-tools[dask]'") from error
        self._folder = folder
        self._runner = runner
        self._tries = Counter[str]()
        self._make_stamp = functools.cache(make_stamp)
        """Inputs do not change during a sweep."""
        try:
            self._client: Any = distributed.Client(address, timeout=_CONNECT_TIMEOUT_S, set_as_default=False)
        except (OSError, ValueError) as error:
            raise UsageError(f"option --scheduler: {address!r} cannot be reached: {error}") from error

    def run(self, tasks: Sequence[Task], ended: Callable[[SweepRow], None]) -> None:
        """Run tasks, and call ``ended`` with each new row. Raises NncfToolsError, Interrupted.

        After the loss of a worker, the task runs again on another worker.
        """
        running: dict[str, tuple[Task, Any]] = {}
        """By worker: the task, and the future of the archive."""
        try:
            with self._runner.starter.interruptible():  # Dask waits for up to an hour
                self._run(list(tasks), running, ended)
            self._runner.check()
        except Interrupted:
            futures = [future for _, future in running.values()]
            cancels = threading.Thread(
                target=self._client.cancel,
                args=[futures],
                kwargs={"force": True},
                daemon=True,
            )
            with held_back():
                cancels.start()
            cancels.join(_CANCEL_TIMEOUT_S)  # the scheduler may hang
            raise

    def _run(
        self, waiting: list[Task], running: dict[str, tuple[Task, Any]], ended: Callable[[SweepRow], None]
    ) -> None:
        while (waiting or running) and not self._runner.is_interrupted():
            workers = set(self._client.scheduler_info(n_workers=-1)["workers"])
            for worker, (task, future) in list(running.items()):
                if worker in workers and not future.done():
                    continue
                del running[worker]
                if future.status == "finished":
                    ended(self._take_result(task, future))
                else:
                    self._check_tries(task, self._explain(future, is_there=worker in workers))
                    future.cancel()
                    waiting.insert(0, task)
            for worker in sorted(workers - set(running))[: len(waiting)]:
                task = waiting.pop(0)
                screen.line(f"Running {task.row.name} on {worker}…")
                running[worker] = task, self._submit(task, worker)
            time.sleep(_POLL_S)

    def _check_tries(self, task: Task, why: str) -> None:
        name = task.row.name
        self._tries[name] += 1
        if self._tries[name] >= _MOST_TRIES:
            raise NncfToolsError(f"{name} failed {_MOST_TRIES} times on the cluster: {why}")
        screen.line(f"{name}: {why}; it runs again")

    def _submit(self, task: Task, worker: str) -> Any:  # noqa: ANN401 — Dask's
        """Send missing inputs to a worker, start the task, and return the future."""
        stamps = {name: self._make_stamp(path) for name, path in task.inputs.items()}
        text = repr(sorted(stamps.items()))
        digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]
        where = {"workers": [worker], "allow_other_workers": False, "pure": False}
        lacks = self._client.submit(lacks_inputs, task.inputs, stamps, digest, **where)
        if lacks.result(timeout=_ANSWER_TIMEOUT_S):
            parts: dict[str, Path] = {}
            for name, path in task.inputs.items():
                parts |= {f"{name}/{file.name}": file for file in list_files(Path(path))}
            archive = self._client.scatter(pack(parts), workers=[worker], hash=False)
            received = self._client.submit(receive, archive, digest, **where)
            received.result(timeout=_SEND_TIMEOUT_S)
        return self._client.submit(work, msgspec.json.encode(task), stamps, digest, **where)

    def _take_result(self, task: Task, future: Any) -> SweepRow:  # noqa: ANN401 — Dask's
        """Put the files of a task into the folder of the sweep, and return the row."""
        target = self._folder.clear(task.row.name)
        with tempfile.TemporaryDirectory(dir=target.parent) as name:
            folder = Path(name, "task")
            unpack(future.result(), folder)
            row = msgspec.json.decode((folder / ROW).read_bytes(), type=SweepRow)
            target.rmdir()
            folder.rename(target)
        return row

    @staticmethod
    def _explain(future: Any, *, is_there: bool) -> str:  # noqa: ANN401 — Dask's
        if not is_there:
            return "its worker is lost"
        error = future.exception() if future.status == "error" else future.status
        return f"its worker failed: {error}"
