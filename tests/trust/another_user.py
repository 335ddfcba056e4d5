"""The second user in the tests of shared folders."""

from __future__ import annotations

import os

import pytest

OTHER = 65534
"""A user with ordinary permissions."""
as_another = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as a second user")
BECOMES_ANOTHER = ("setpriv", f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups")
"""Words before a command that make the second user run it."""
