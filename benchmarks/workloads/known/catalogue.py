"""Workloads by name."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.workloads.known.witness import Witness

_MODULES = ("alone", "marked", "families", "pools")


def workload(name: str) -> Callable[[Witness], None]:
    """Return the function ``name`` of one of the modules. Raises LookupError."""
    for module in _MODULES:
        functions: dict[str, Callable[[Witness], None]] = vars(importlib.import_module(f"{__package__}.{module}"))
        if name in functions:
            return functions[name]
    raise LookupError(name)
