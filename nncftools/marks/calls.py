"""The functions that a user wants to mark, and the environment that makes a command mark them."""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from nncftools import intake
from nncftools.backports import toml_of
from nncftools.marks.autoload import CALLS, HELPER, began_at
from nncftools.marks.line import VARIABLE
from nncftools.session.nesting import kind_of

HOOK = pathlib.Path(__file__).with_name("hook")
"""The folder that goes first on a command's PYTHONPATH."""
_CALL = re.compile(r"(?P<module>[^\W\d]\w*(\.[^\W\d]\w*)*):(?P<function>[^\W\d]\w*(\.[^\W\d]\w*)*)(=(?P<name>.*\S.*))?")

_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*(=.*)?$")


class Call(NamedTuple):
    """A function to mark, and the name of its operations."""

    module: str
    """The module that defines it."""
    function: str
    """Its name in that module, or ``Class.method``."""
    name: str


def parse(texts: Iterable[str]) -> list[Call]:
    """Parse texts like ``package.module:function=Name``; the name is the function's by default. Raises ValueError.

    The module ``__main__`` is the script itself.
    """
    calls = []
    for text in texts:
        match = _CALL.fullmatch(text.strip())
        name = "" if match is None else (match["name"] or match["function"]).strip()
        if match is None or not name.isprintable():
            expected = "package.module:function=Name or package.module:Class.method=Name expected"
            script = f"; of the script itself: __main__:{text.strip()}" if _FUNCTION.match(text.strip()) else ""
            raise ValueError(f"{expected}, found {text!r}{script}")
        calls.append(Call(match["module"], match["function"], name))
    return calls


def from_pyproject(folder: pathlib.Path) -> list[Call]:
    """Return the functions in ``mark-calls`` of ``[tool.nncf-tools]``, from the nearest pyproject.toml upwards.

    Raises ValueError, which names the file, when it is invalid; OSError when it cannot be read.
    """
    resolved = folder.resolve()
    path = next((path for above in (resolved, *resolved.parents) if (path := above / "pyproject.toml").is_file()), None)
    if path is None:
        return []
    try:
        return parse(_texts(toml_of(intake.whole(path).decode("utf-8"))))
    except RecursionError as error:
        raise ValueError(f"{path}: nested too deep") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _texts(document: dict[str, Any]) -> list[str]:
    try:
        return msgspec.convert(document.get("tool", {}).get("nncf-tools", {}).get("mark-calls", []), list[str])
    except (AttributeError, msgspec.ValidationError) as error:
        expected = "a list of texts like package.module:function=Name expected"
        raise ValueError(f"`mark-calls` of [tool.nncf-tools]: {expected}") from error


def environment(log: pathlib.Path, calls: Sequence[Call], helper: int | None = None) -> dict[str, str]:
    """Return the environment variables that make a command's Pythons mark to ``log``, which must exist.

    They also allow the process ``helper`` to read their stacks, if one is given.
    """
    before = os.environ.get("PYTHONPATH")
    variables = {
        VARIABLE: str(log.absolute()),  # not resolved: another user may have put a link there
        "PYTHONPATH": f"{HOOK}{os.pathsep}{before}" if before else str(HOOK),
    }
    if helper is not None:
        variables[HELPER] = f"{helper}:{began_at(helper)}"
    if calls:
        lines = ("\t".join([call.module, call.function, call.name, kind_of(call.name) or ""]) for call in calls)
        variables[CALLS] = "\n".join(lines)
    return variables
