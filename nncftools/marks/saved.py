"""Reads the facts that a saved OpenVINO model holds about itself, from the end of its .xml file.

Runs in the marked program: Python 3.8 and later, the standard library only.
"""

from __future__ import annotations

import os

from .line import quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ELEMENTS = ("nncf", "optimum")
_READ = 64 * 1024


def facts(argument: tuple[int, str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return path and ``rt_info`` as JSON members; empty when the model has no ``rt_info`` or cannot be read."""
    place, name = argument
    try:
        path = os.path.abspath(os.fsdecode(args[place] if len(args) > place else kwargs[name]))
        rt_info = _rt_info(path)
    except (KeyError, TypeError, OSError, ValueError):
        return ""
    return f',"saved":{quoted(path)},"rt_info":{quoted(rt_info)}' if rt_info else ""


def _rt_info(path: str) -> str:
    """Return the elements of the model's ``rt_info``, which follows its layers and edges. Raises OSError."""
    with open(path, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _READ))
        tail = file.read(_READ)
    tail = tail[tail.rfind(b"</edges>") + 1 :]
    found = b""
    for element in ELEMENTS:
        start = tail.find(b"<%s>" % element.encode())
        closing = b"</%s>" % element.encode()
        end = tail.find(closing, start)
        if start >= 0 and end >= 0:
            found += tail[start : end + len(closing)]
    return found.decode("utf-8", "replace")
