"""What runs in the environment of NNCF and OpenVINO, one process for each step; it needs nothing else of nncf-tools.

A step compresses and saves, or evaluates what was saved, or runs a module of a library, so that it ends with the sweep.
It reads its job and appends its result, both JSON. Both are in a file without a name, which is inherited: nobody else
can open or replace it.
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
    """Run the step of a job. Nobody writes to the pipe ``sweep``: it ends when the sweep is gone or says so."""
    for descriptor in (job, sweep):
        os.set_inheritable(descriptor, False)
    threading.Thread(target=_end_with, args=(sweep,), daemon=True).start()
    with open(job, "r+b") as file:
        todo = json.loads(file.read())
        name = todo["step"]
        step = module if name == "module" else getattr(importlib.import_module(f"{__name__}.model"), name)
        file.write(b"\n" + json.dumps(step(todo)).encode())


def _end_with(sweep: int) -> None:
    """End this process with the sweep: another one may measure here next."""
    os.read(sweep, 1)
    os._exit(1)


def seconds(begun_s: float) -> float:
    """Return the seconds since a moment of ``time.perf_counter``."""
    return time.perf_counter() - begun_s


def user_module(job: dict[str, Any]) -> Any:  # noqa: ANN401 — it is the user's
    """Return the user's Python file as a module: the text that the sweep has read, not what has its name by now."""
    theirs = types.ModuleType("nncf_tools_sweep_kind")
    theirs.__file__ = job["kind"]
    code = compile(job["code"], job["kind"], "exec", dont_inherit=True)
    exec(code, theirs.__dict__)  # noqa: S102 — the user asks for it
    return theirs


def module(job: dict[str, Any]) -> dict[str, Any]:
    """Run ``module`` with the command line ``words`` in ``folder``; return nothing. It may end the process."""
    os.chdir(job["folder"])
    sys.argv = [job["module"], *job["words"]]
    try:
        runpy.run_module(job["module"], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if ended.code:
            raise
    return {}
