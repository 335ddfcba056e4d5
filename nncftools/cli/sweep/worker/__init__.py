"""Steps of a sweep, which run in the environment of NNCF and OpenVINO. This folder imports nothing else of nncf-tools.

Each step is a process: it compresses and saves a model, evaluates a saved model, or runs a module of a library. The
process inherits a file without a name, so no other process can open or replace the file. The step reads the job from
the file and appends the result, both in JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import sys
import threading
import time
import types
from typing import Any


def run(job: int, sweep: int) -> None:
    """Run the step of a job. ``job`` and ``sweep`` are file descriptors.

    ``job`` is a file with the settings of the step in JSON; the result is appended to this file. ``sweep`` is a pipe
    that closes when the sweep ends.
    """
    os.set_inheritable(job, False)
    os.set_inheritable(sweep, False)
    threading.Thread(target=_end_with, args=(sweep,), daemon=True).start()
    with open(job, "r+b") as file:
        todo = json.loads(file.read())
        name = todo["step"]
        step = run_module if name == "module" else getattr(importlib.import_module(f"{__name__}.model"), name)
        result = json.dumps(step(todo))
        file.write(b"\n" + result.encode())


def _end_with(sweep: int) -> None:
    """End this process when the sweep ends. Otherwise, the process would disturb the measurements of the next sweep."""
    os.read(sweep, 1)
    os._exit(1)


def seconds(begun_s: float) -> float:
    """Return the seconds since ``begun_s``, a value of ``time.perf_counter``."""
    return time.perf_counter() - begun_s


def load_user_module(job: dict[str, Any]) -> Any:  # noqa: ANN401 — the user's module
    """Run the text of the user's Python file, and return the module.

    The sweep has read and checked this text, so the file is not read again.
    """
    module = types.ModuleType("nncf_tools_sweep_kind")
    module.__file__ = job["kind"]
    code = compile(job["code"], job["kind"], "exec", dont_inherit=True)
    exec(code, module.__dict__)  # noqa: S102 — the user asks for it
    return module


def run_module(job: dict[str, Any]) -> dict[str, Any]:
    """Run ``module`` with the arguments ``words`` in ``folder``; return an empty result.

    The module may end the process.
    """
    os.chdir(job["folder"])
    sys.argv = [job["module"], *job["words"]]
    try:
        runpy.run_module(job["module"], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if ended.code:
            raise
    return {}
