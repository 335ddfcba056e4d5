"""Runs a module of a library as a step, so that it ends with the sweep."""

from __future__ import annotations

import os
import runpy
import sys
from typing import Any


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Run ``module`` with the command line ``words`` in ``folder``; return nothing. It may end the process."""
    os.chdir(job["folder"])
    sys.argv = [job["module"], *job["words"]]
    try:
        runpy.run_module(job["module"], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if ended.code:
            raise
    return {}
