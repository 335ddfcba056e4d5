"""``nncf-tools mark``: name an operation from a shell script."""

from __future__ import annotations

import os
from typing import Annotated

from nncftools.cli.parameters import argument
from nncftools.errors import NncfToolsError, UsageError
from nncftools.marks.line import VARIABLE, opened


def mark(name: Annotated[str, argument("NAME", "The operation's name in the report.")]) -> None:
    """Start an operation in the current recording; the next mark ends it.

    \b
    Example, in a script that `nncf-tools profile ./compress.sh` runs:
      nncf-tools mark Export
      optimum-cli export openvino --model DIR OUT
      nncf-tools mark 'Weight Compression'
      python compress.py OUT

    Outside a recording it does nothing. From any other language, append a line to
    the file that NNCF_TOOLS_MARKS names (docs/marks.md).
    """
    if not name.strip():
        raise UsageError("argument NAME: at least one character expected")
    log = os.environ.get(VARIABLE)
    if not log:
        return
    from nncftools.marks.operations import mark_from_outside

    try:
        descriptor = opened(os.fsencode(log))
        try:
            mark_from_outside(descriptor, name, "shell")
        finally:
            os.close(descriptor)
    except OSError as error:
        raise NncfToolsError(
            f"the marks log {log!r}, named by {VARIABLE}, cannot be written: {error.strerror}"
        ) from error
