from __future__ import annotations

import pytest

from nncftools.journal.writing import Plan
from nncftools.sampler import process_records, service


def refused() -> None:
    """Refuse a subscription, as the kernel does without CAP_NET_ADMIN."""
    raise PermissionError(1, "Operation not permitted")


def accounting(source: str) -> object:
    """Return the exit accounting of a recording."""
    return service._exit_accounting(Plan([], source=source))


def test_without_the_privilege(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the privilege for exit accounting, a recording works without it."""
    monkeypatch.setattr(process_records, "Exits", refused)

    assert accounting("proc") is None


def test_on_another_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source for other systems asks no kernel."""
    monkeypatch.setattr(process_records, "Exits", lambda: pytest.fail("asked"))

    assert accounting("psutil") is None


def test_with_the_privilege(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the privilege, a recording uses exit accounting."""
    made = object()
    monkeypatch.setattr(process_records, "Exits", lambda: made)

    assert accounting("proc") is made
