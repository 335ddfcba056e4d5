"""Waits for visible conditions, never for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tests.surroundings import HANGING_S

_LOOK_EVERY_S = 0.005
Seen = TypeVar("Seen")


def until(look: Callable[[], Seen], what: str = "what the test waits for") -> Seen:
    """Poll until the result is true, and return it; fail when that takes too long."""
    deadline = time.monotonic() + HANGING_S
    while not (seen := look()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(_LOOK_EVERY_S)
    return seen
