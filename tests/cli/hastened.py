"""nncf-tools with shortened periods, for tests that would otherwise wait for them."""

from __future__ import annotations

import sys
from collections.abc import Mapping

_PROGRAM = """
import importlib, sys
for each in sys.argv.pop(1).split():
    place, seconds = each.split("=")
    module, name = place.rsplit(".", 1)
    importlib.import_module(module)
    if not hasattr(sys.modules[module], name):
        sys.exit(f"there is no {place}")
    setattr(sys.modules[module], name, float(seconds))
from nncftools.__main__ import main
main()
"""


def hastened(periods: Mapping[str, float], *words: object) -> list[str]:
    """Return the argument list that runs nncf-tools with ``words``; ``periods`` maps module and name to seconds."""
    given = " ".join(f"nncftools.{place}={seconds}" for place, seconds in periods.items())
    return [sys.executable, "-c", _PROGRAM, given, *map(str, words)]
