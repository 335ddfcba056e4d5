"""Operations that a Python program names itself, in whatever process of a recorded run it is."""

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
    """Begin an operation that the next one on its level ends, or the end of what it is inside of.

    Does nothing when nothing records.
    """
    log = os.environ.get(line.VARIABLE)
    if log:
        line.append(os.fsencode(log), line.moment(line.described(name, SOURCE), monotonic_ns()))


@contextlib.contextmanager
def operation(name: str) -> Iterator[None]:
    """Name what is done in a ``with`` block, or by a function that this decorates; an exception ends it, too.

    Does nothing when nothing records.
    """
    log = os.environ.get(line.VARIABLE)
    if not log:
        yield
        return
    path, op, error = os.fsencode(log), next(line.operations), None
    line.append(path, line.begin(op, line.described(name, SOURCE), monotonic_ns()))
    try:
        yield
    except BaseException as raised:
        error = type(raised).__name__
        raise
    finally:
        line.append(path, line.end(op, monotonic_ns(), error))


def mark_from_outside(log: int, name: str, source: str) -> None:
    """Begin an operation of the run as a whole, which the next one that is marked from outside ends.

    ``log`` is a descriptor, opened to append. Raises OSError.
    """
    os.write(log, f'{{{line.described(name, source)},"t_ns":{monotonic_ns()}}}\n'.encode("ascii"))
