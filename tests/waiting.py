"""Wait for what a test can see, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tests.surroundings import HANGING_S

_LOOK_EVERY_S = 0.005
Seen = TypeVar("Seen")


def until(look: Callable[[], Seen], what: str = "what the test waits for") -> Seen:
    """Look until there is something to be seen (anything true) and return it; fail when it never comes."""
    deadline = time.monotonic() + HANGING_S
    while not (seen := look()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(_LOOK_EVERY_S)
    return seen
