"""The first line of a journal; apart from the reader, because a recording begins with it and must begin soon."""

from __future__ import annotations

import os
from typing import Any

from nncftools.session import rank

FORMAT = "nncf-tools-journal"
VERSION = 1
"""1: first version (2026-11)."""


def header(*, name: str, command: list[str], cwd: str, host: dict[str, Any], tool_version: str) -> dict[str, Any]:
    """Return the facts that a journal's first line holds besides the plan; the rank is what the environment says."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "tool_version": tool_version,
        "name": name,
        "command": command,
        "cwd": cwd,
        "rank": rank.of(os.environ),
        "host": host,
    }
