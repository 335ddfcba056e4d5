"""What a sweep reads: a model, texts, and a stand-in for a Python with NNCF."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.conftest import BURNERS

STAND_IN = f'exec {sys.executable} -S -E {BURNERS / "sweep_python.py"} "$@"'
"""The shell command that does what a Python with NNCF would do."""
WORDS = "Each process has memory of its own, and a kernel that counts it page by page, as long as it lives. " * 3
OTHER = "Nobody knows what weather comes tomorrow, but farmers of old looked at the sky and at birds before sunset. "


def write_inputs(folder: Path, *, is_exported: bool = False) -> Path:
    """Write the inputs of a sweep into a folder, for whose model OpenVINO's files may exist; return the folder."""
    model = folder / "model"
    model.mkdir(parents=True)
    (model / "config.json").write_text('{"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 8}')
    if is_exported:
        (model / "openvino_model.xml").touch()
        (model / "openvino_model.bin").write_bytes(bytes(1000))
    (folder / "text.txt").write_text(WORDS)
    (folder / "calibration.txt").write_text(OTHER)
    write_python(folder, STAND_IN)
    return folder


def write_python(folder: Path, script: str) -> None:
    """Write a program that stands for a Python: a script for the shell."""
    (folder / "python").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "python").chmod(0o755)
