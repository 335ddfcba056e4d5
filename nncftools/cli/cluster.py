"""Runs the configurations of a sweep on a Dask cluster, one at a time on each worker."""

from __future__ import annotations

import hashlib
import pathlib
import tempfile
import time
from typing import TYPE_CHECKING, Any

import msgspec

from nncftools.cli import cluster_work
from nncftools.compression.sweep.folder import ROW, files_of, stamp
from nncftools.compression.sweep.row import Row
from nncftools.errors import NncfToolsError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nncftools.compression.sweep.folder import Folder
    from nncftools.compression.sweep.task import Task
    from nncftools.sampler.starter import Starter

_CONNECTS_S = 20
_LOOKS_S = 0.2
_ANSWERS_S, _SENDS_S = 60, 3600
_MOST_TRIES = 3
_DIGEST = 16


class Cluster:
    """Runs tasks on the workers of a cluster; workers may come and go."""

    def __init__(self, address: str, folder: Folder, starter: Starter, say: Callable[[str], None]) -> None:
        """Connect to the scheduler. Raises UsageError if that is impossible."""
        try:
            import distributed
        except ImportError as error:
            raise UsageError("option --scheduler: Dask is not installed: pip install 'nncf-tools[dask]'") from error
        self._folder = folder
        self._starter = starter
        self._say = say
        self._known: dict[str, tuple[dict[str, str], str]] = {}
        try:
            self._client: Any = distributed.Client(address, timeout=_CONNECTS_S, set_as_default=False)
        except (OSError, ValueError) as error:
            raise UsageError(f"option --scheduler: {address!r} cannot be reached: {error}") from error

    def run(self, tasks: Sequence[Task], ended: Callable[[Row], None]) -> bool:
        """Run tasks; see ``Executor``. A task whose worker is lost runs again on another one."""
        waiting = list(tasks)
        running: dict[str, tuple[Task, Any]] = {}
        tries: dict[str, int] = {}
        while waiting or running:
            if self._starter.received is not None:
                self._client.cancel([future for _, future in running.values()], force=True)
                return False
            workers = set(self._client.scheduler_info(n_workers=-1)["workers"])
            for worker, (task, future) in list(running.items()):
                if worker in workers and not future.done():
                    continue
                del running[worker]
                if future.status == "finished":
                    ended(self._taken(task, future))
                else:
                    self._check_tries(task, tries, self._why(future, is_there=worker in workers))
                    future.cancel()
                    waiting.insert(0, task)
            for worker in sorted(workers - set(running))[: len(waiting)]:
                task = waiting.pop(0)
                self._say(f"Running {task.name} on {worker}…")
                running[worker] = task, self._submitted(task, worker)
            time.sleep(_LOOKS_S)
        return True

    def _check_tries(self, task: Task, tries: dict[str, int], why: str) -> None:
        """Count a try that failed. Raises NncfToolsError after the last one."""
        tries[task.name] = tries.get(task.name, 0) + 1
        if tries[task.name] >= _MOST_TRIES:
            raise NncfToolsError(f"{task.name} failed {_MOST_TRIES} times on the cluster: {why}")
        self._say(f"{task.name}: {why}; it runs again")

    def _submitted(self, task: Task, worker: str) -> Any:  # noqa: ANN401 — Dask's
        """Send inputs if the worker does not have them, and return the future of the task."""
        stamps, digest = self._stamps(task.inputs)
        where = {"workers": [worker], "allow_other_workers": False, "pure": False}
        lacks = self._client.submit(cluster_work.lacking, task.inputs, stamps, digest, **where)
        if lacks.result(timeout=_ANSWERS_S):
            files = [(name, file) for name, path in task.inputs.items() for file in files_of(pathlib.Path(path))]
            parts = {f"{name}/{file.name}": file for name, file in files}
            archive = self._client.scatter(cluster_work.packed(parts), workers=[worker], hash=False)
            self._client.submit(cluster_work.receive, archive, digest, **where).result(timeout=_SENDS_S)
        return self._client.submit(cluster_work.work, msgspec.json.encode(task), stamps, digest, **where)

    def _taken(self, task: Task, future: Any) -> Row:  # noqa: ANN401 — Dask's
        """Put the files of a task where they would be if it had run here, and return its row."""
        target = self._folder.clear(task.name)
        with tempfile.TemporaryDirectory(dir=target.parent) as name:
            folder = pathlib.Path(name, "task")
            cluster_work.unpack(future.result(), folder)
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
        """Return the stamp of each input, and one digest of all; inputs do not change during a sweep."""
        key = repr(sorted(inputs.items()))
        if key not in self._known:
            stamps = {name: stamp(pathlib.Path(path)) for name, path in inputs.items()}
            whole = hashlib.sha256(repr(sorted(stamps.items())).encode())
            self._known[key] = stamps, whole.hexdigest()[:_DIGEST]
        return self._known[key]
