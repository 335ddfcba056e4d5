"""The environment of the real tools: a virtual environment of their own, named by NNCF_TOOLS_REAL."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

MODELS = Path(__file__).parent / "models.py"


@pytest.fixture(scope="session")
def real_environment() -> dict[str, str]:
    """Return the environment variables in which the real tools run, offline and without telemetry."""
    folder = os.environ.get("NNCF_TOOLS_REAL")
    if folder is None:
        if "CI" in os.environ:
            pytest.fail("in CI the real tools must be there: NNCF_TOOLS_REAL is not set")
        pytest.skip("NNCF_TOOLS_REAL does not name a virtual environment made from tests/real/requirements.txt")
    path = f"{Path(folder).resolve() / 'bin'}{os.pathsep}{os.environ['PATH']}"
    patience = {"NNCF_EXTENSION_LOAD_TIMEOUT": "600"}  # it compiles C++ the first time: NNCF gives up after 60 s
    return {**os.environ, "PATH": path, "CI": "true", "HF_HUB_OFFLINE": "1", **patience}


@pytest.fixture(scope="session", params=["llama", "minilm"])
def model(
    request: pytest.FixtureRequest, real_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Write a model, random or from PyPI, and return its folder."""
    return written_model(request.param, real_environment, tmp_path_factory)


@pytest.fixture(scope="session")
def llama(real_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the random Llama and return its folder."""
    return written_model("llama", real_environment, tmp_path_factory)


def written_model(name: str, environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a model into a new folder and return it."""
    folder = tmp_path_factory.mktemp("models") / name
    subprocess.run(["python", str(MODELS), name, str(folder)], env=environment, check=True, timeout=300)
    return folder
