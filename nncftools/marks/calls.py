"""Parses the names of functions that a user wants to mark, and makes the environment variables of a marked command."""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nncftools.marks.autoload import CALLS, HELPER, read_start
from nncftools.marks.line import VARIABLE
from nncftools.session.nesting import kind_of

HOOK = pathlib.Path(__file__).with_name("hook")
"""The folder with ``sitecustomize.py``, the first folder on the PYTHONPATH of a command."""
_NAME = r"[^\W\d]\w*(\.[^\W\d]\w*)*"
_CALL = re.compile(rf"(?P<module>{_NAME}):(?P<function>{_NAME})(=(?P<name>.*\S.*))?")
_FUNCTION = re.compile(rf"{_NAME}(=.*)?$")


class Call(NamedTuple):
    """A function to mark. Each call becomes an operation with the name ``name``."""

    module: str
    """The module that defines the function."""
    function: str
    """``function`` or ``Class.method``."""
    name: str


def parse(texts: Iterable[str]) -> list[Call]:
    """Parse texts like ``package.module:function=Name``. Without ``=Name``, the operation is named after the function.

    The module ``__main__`` is the script itself. Raises ValueError.
    """
    calls = []
    for text in texts:
        match = _CALL.fullmatch(text.strip())
        name = "" if match is None else (match["name"] or match["function"]).strip()
        if match is None or not name.isprintable():
            expected = "package.module:function=Name or package.module:Class.method=Name expected"
            script = f"; for the script itself: __main__:{text.strip()}" if _FUNCTION.match(text.strip()) else ""
            raise ValueError(f"{expected}, found {text!r}{script}")
        calls.append(Call(match["module"], match["function"], name))
    return calls


def environment(log: pathlib.Path, calls: Sequence[Call], helper: int | None = None) -> dict[str, str]:
    """Return the environment variables that make each Python of a command write marks to ``log``, an existing file.

    If ``helper`` is given, each Python also allows the process with this PID to read the stacks.
    """
    path = os.environ.get("PYTHONPATH")
    variables = {
        VARIABLE: str(log.absolute()),  # links are not resolved: another user may have made a link
        "PYTHONPATH": f"{HOOK}{os.pathsep}{path}" if path else str(HOOK),
    }
    if helper is not None:
        variables[HELPER] = f"{helper}:{read_start(helper)}"
    if calls:
        lines = [(*call, kind_of(call.name) or "") for call in calls]
        variables[CALLS] = "\n".join(map("\t".join, lines))
    return variables
