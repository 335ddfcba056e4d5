"""Runs a module of a library as a step, so that it ends with the sweep."""

from __future__ import annotations

import runpy
import sys
from typing import Any


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Run ``module`` with the command line ``words``; it may end the process. Return nothing."""
    sys.argv = [job["module"], *job["words"]]
    runpy.run_module(job["module"], run_name="__main__", alter_sys=True)
    return {}
