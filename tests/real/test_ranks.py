"""Ranks that torchrun itself starts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from nncftools.analysis.ranks import merge_ranks
from nncftools.analysis.session import Session
from tests.conftest import HANGING_S, burner, command_line

pytestmark = pytest.mark.real


def test_torchrun(tmp_path: Path, real_environment: dict[str, str]) -> None:
    """Three workers of torchrun record themselves at the same time, and their recordings are merged."""
    (tmp_path / "meeting").mkdir()
    command = burner("rank", tmp_path / "meeting")
    words = command_line("monitor --type rss --interval 0.02 --output run.json", *command)
    launcher = ["torchrun", "--no-python", "--nproc-per-node", "3"]
    subprocess.run([*launcher, *words], cwd=tmp_path, env=real_environment, check=True, timeout=HANGING_S)
    files = sorted(tmp_path.glob("run-rank*.json"))
    job = merge_ranks({path.name: Session.load(path) for path in files})

    assert [path.name for path in files] == ["run-rank0.json", "run-rank1.json", "run-rank2.json"]
    assert [run.name for run in job.ranks] == ["rank 0", "rank 1", "rank 2"]
    assert {run.rank.launcher for run in job.ranks if run.rank is not None} == {"torchrun"}
    assert [warning for warning in job.warnings if "samples were missed" not in warning] == []  # a busy machine
