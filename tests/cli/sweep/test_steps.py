from __future__ import annotations

import pathlib

from nncftools.cli import recording
from nncftools.cli.sweep import steps


def test_reason_has_a_text(tmp_path: pathlib.Path) -> None:
    """A run failed for the last error in its log that says more than its name."""
    log = tmp_path / "log"
    log.write_text("RuntimeError: no TorchScript\nException:\ntuple index out of range\n")
    with log.open() as file:
        why = steps.why(recording.Recorded(1, None), file.fileno())

    assert why == "exit status 1: RuntimeError: no TorchScript"


def test_interrupt_is_a_reason(tmp_path: pathlib.Path) -> None:
    """An error without any text is one, too."""
    log = tmp_path / "log"
    log.write_text("Traceback (most recent call last):\nKeyboardInterrupt\n")
    with log.open() as file:
        assert steps.why(recording.Recorded(130, None), file.fileno()) == "exit status 130: KeyboardInterrupt"
