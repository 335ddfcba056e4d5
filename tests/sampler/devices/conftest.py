"""The stand-in for NVIDIA's library, and what its drivers answer."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from nncftools.sampler.devices import FOR_TESTS

SOURCE = Path(__file__).with_name("nvml.c")


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the stand-in for libnvidia-ml.so.1, made from C."""
    path = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", path, SOURCE], check=True)
    return path


@pytest.fixture
def script(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file with the answers of the stand-in, which is found in place of the library."""
    path = tmp_path / "script"
    path.write_text("")
    monkeypatch.setenv(FOR_TESTS, str(library))
    monkeypatch.setenv("NVML_SCRIPT", str(path))
    return path
