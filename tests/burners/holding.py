"""Hold on as a burner was asked to: for a time, or until the test has seen what it needs."""

import os
import sys
import time

MOST_S = 240


def hold(how: str) -> None:
    """Sleep so many seconds; or until a file of this name exists, and end when it never comes."""
    try:
        time.sleep(float(how))
    except ValueError:
        deadline = time.monotonic() + MOST_S
        while not os.path.exists(how):  # noqa: PTH110 — as small as possible
            if time.monotonic() > deadline:
                sys.exit(f"waited in vain for {how}")
            time.sleep(0.01)
