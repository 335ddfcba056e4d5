"""A made-up session with operations, counters and a gap, which has goldens."""

from __future__ import annotations

from nncftools.analysis.session import Session
from tests.golden_outputs import DATA


def run() -> Session:
    """Return an export of 12 seconds with four operations, one inside another, PSS now and then, and one gap."""
    return Session.load(DATA / "runs" / "export.json")
