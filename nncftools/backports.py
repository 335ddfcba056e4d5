"""Replacements for parts of Python 3.11's standard library. Remove this module together with support of Python 3.10."""

from __future__ import annotations

import datetime as dt
import enum
import sys
from typing import Any

if sys.version_info >= (3, 11):
    StrEnum = enum.StrEnum
else:

    class StrEnum(str, enum.Enum):
        """An enumeration whose members are strings, also in ``str()`` and ``format()``."""

        __str__ = str.__str__

        def __format__(self, format_spec: str) -> str:
            """Format the member as a string."""
            return str.__format__(self, format_spec)


SAFE_PATH = "import sys; sys.path[:] = filter(None, sys.path)"
"""First line of a ``python -c`` script. Like ``-P``, the line prevents imports from the working folder."""


def running(module: str) -> list[str]:
    """Return a command that runs a module like ``python -P -m``, that is, without imports from the working folder."""
    run = f"import runpy; runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    return [sys.executable, "-c", f"{SAFE_PATH}; {run}"]


def moment_of(text: str) -> dt.datetime:
    """Parse a time in ISO 8601, such as ``"2026-11-21T07:00:00.5Z"``. Raises ValueError.

    The parser of Python 3.10 accepts neither ``Z`` nor ``+0100``, and it accepts only 3 or 6 decimals of a second.
    """
    if sys.version_info < (3, 11):
        import re

        match = re.fullmatch(r"(.+?:\d\d:\d\d)(?:[.,](\d+))?(Z|[+-]\d\d(?::?\d\d)?)?", text)
        if match is not None:
            until_second, decimals, zone = match.groups("")
            zone = zone.replace("Z", "+00")
            minutes = zone[3:].lstrip(":") or "00"
            text = f"{until_second}.{decimals[:6]:0<6}" + (f"{zone[:3]}:{minutes}" if zone else "")
    return dt.datetime.fromisoformat(text)


def toml_of(text: str) -> dict[str, Any]:
    """Parse TOML. Raises ValueError."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    document: dict[str, Any] = tomllib.loads(text)
    return document
