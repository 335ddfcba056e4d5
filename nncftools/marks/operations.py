"""Operations that a Python program marks itself, in any process of a recorded run."""

from __future__ import annotations

import contextlib
import os
from time import monotonic_ns
from typing import TYPE_CHECKING

from nncftools.marks import line

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = "api"


def mark_operation(name: str) -> None:
    """Begin an operation; the next one on its level ends it, or the end of the enclosing one.

    Does nothing when nothing is recording.
    """
    log = os.environ.get(line.VARIABLE)
    if log:
        line.append(os.fsencode(log), line.moment(line.common_members(name, SOURCE), monotonic_ns()))


@contextlib.contextmanager
def operation(name: str) -> Iterator[None]:
    """Mark a ``with`` block or a decorated function as an operation; an exception ends it, too.

    Does nothing when nothing is recording.
    """
    log = os.environ.get(line.VARIABLE)
    if not log:
        yield
        return
    path, op, error = os.fsencode(log), next(line.operations), None
    line.append(path, line.begin(op, line.common_members(name, SOURCE), monotonic_ns()))
    try:
        yield
    except BaseException as raised:
        error = type(raised).__name__
        raise
    finally:
        line.append(path, line.end(op, monotonic_ns(), error))


def mark_from_outside(log: int, name: str, source: str) -> None:
    """Begin an operation of the whole run; the next one marked from outside ends it.

    ``log`` is a descriptor opened for appending. Raises OSError.
    """
    os.write(log, f'{{{line.common_members(name, source)},"t_ns":{monotonic_ns()}}}\n'.encode("ascii"))
