from __future__ import annotations

import os
import threading

import pytest

from nncftools.live.figures import ViewSettings
from nncftools.live.viewer import LiveView


class _Impatient(threading.Thread):
    """A thread for which the user does not wait."""

    def join(self, timeout: float | None = None) -> None:  # noqa: ARG002 — as Thread has it
        raise KeyboardInterrupt


def test_output_is_not_lost_when_the_user_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command's last line arrives though a signal ends the wait for the view's last drawing."""
    monkeypatch.setenv("TERM", "xterm")
    outer, inner = os.openpty()
    view = LiveView(inner, ViewSettings(), alone=False)
    view._thread = _Impatient()
    assert view.terminal is not None
    view.terminal.take(b"told\n")
    with pytest.raises(KeyboardInterrupt), view:
        pass
    view.terminal.show(["a late drawing"], view.terminal.size())
    written = os.read(outer, 1000)
    os.close(outer)
    os.close(inner)

    assert b"told" in written
    assert b"late" not in written
