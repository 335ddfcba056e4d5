"""The steps: compress and save, or evaluate what was saved. A step reads its job and writes its result, both JSON."""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import threading
import time
from typing import Any

STEPS = {
    "compress": "language_compression",
    "evaluate": "language_evaluation",
    "quantize": "model_quantization",
    "score": "model_score",
    "module": "module",
}
"""The module of each step; it has ``run(job) -> result``."""
_LOOKS_S = 0.5


def run(file: pathlib.Path) -> None:
    """Run the step of a job, and write its result beside the job: whole or not at all."""
    job = json.loads(file.read_text(encoding="utf-8"))
    threading.Thread(
        target=_end_with, args=(job["starter"], job["started"], pathlib.Path(job["stop"])), daemon=True
    ).start()
    module = importlib.import_module(f".{STEPS[job['step']]}", __package__)
    result = pathlib.Path(job["result"])
    beside = result.with_name(f".{result.name}")
    beside.write_text(json.dumps(module.run(job)), encoding="utf-8")
    beside.replace(result)


def _end_with(pid: int, started: str, stop: pathlib.Path) -> None:
    """End this process when the sweep is gone or says so: another sweep may measure here next."""
    while _began(pid) == started and not stop.exists():
        time.sleep(_LOOKS_S)
    os._exit(1)


def _began(pid: int) -> str:
    """Return when a process began, as the sweep read it; empty where there is no ``/proc``, or no process."""
    try:
        return (
            pathlib.Path(f"/proc/{pid}/stat")
            .read_text(encoding="ascii", errors="replace")
            .rpartition(")")[2]
            .split()[19]
        )
    except OSError:
        return ""


def seconds(begun_s: float) -> float:
    """Return the seconds since a moment of ``time.perf_counter``."""
    return time.perf_counter() - begun_s


def user_module(path: str) -> Any:  # noqa: ANN401 — it is the user's
    """Return the user's Python file as a module."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("nncf_tools_sweep_kind", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
