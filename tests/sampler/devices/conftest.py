"""The stand-in for NVIDIA's library, and what its drivers answer."""

from __future__ import annotations

import pathlib
import subprocess

import pytest

from nncftools.sampler.devices import FOR_TESTS

SOURCE = pathlib.Path(__file__).with_name("nvml.c")


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Return the stand-in for libnvidia-ml.so.1, made from C."""
    path = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", path, SOURCE], check=True)
    return path


@pytest.fixture
def script(library: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Return the file with the answers of the stand-in, which is found in place of the library."""
    path = tmp_path / "script"
    path.write_text("")
    monkeypatch.setenv(FOR_TESTS, str(library))
    monkeypatch.setenv("NVML_SCRIPT", str(path))
    return path
