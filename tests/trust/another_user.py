"""The second user in the tests of shared folders."""

from __future__ import annotations

import os

import pytest

OTHER = 65534
THIRD = 12345
"""Users with ordinary permissions."""
as_another = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as a second user")
BECOMES_ANOTHER = ("setpriv", f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups")
"""Words before a command that make the second user run it."""


def become(user: int, group: int | None = None) -> list[str]:
    """Return words before a command that make a user run it, who may read Python in root's home."""
    reads = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    return ["setpriv", f"--reuid={user}", f"--regid={user if group is None else group}", "--clear-groups", *reads]
