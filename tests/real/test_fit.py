"""How little memory would do for a real export."""

from __future__ import annotations

import json
import pathlib

import pytest

from tests.conftest import Run
from tests.memory_group import IS_POSSIBLE

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not IS_POSSIBLE, reason="only root makes control groups"),
]


def test_export(nncf_tools: Run, llama: pathlib.Path, real_environment: dict[str, str], tmp_path: pathlib.Path) -> None:
    """A few runs find a limit with which the export works, above its floor, and say how the others ended."""
    export = ["optimum-cli", "export", "openvino", "--model", str(llama), "--task", "text-generation", "out"]
    checks = ["--prepare", "rm -rf out", "--success", "test -s out/openvino_model.bin"]
    done = nncf_tools("fit", "--runs", "4", *checks, "-o", "fit", "--", *export, env=real_environment, timeout=400)
    found = json.loads((tmp_path / "fit/fit.json").read_text())
    worked = [trial for trial in found["trials"] if trial["worked"]]
    failed = [trial for trial in found["trials"] if not trial["worked"]]

    assert done.returncode == 0, done.stderr
    assert 200 << 20 < found["free"]["floor"] < found["free"]["peak_rss"]
    assert found["works_from"] == min(trial["limit"] for trial in worked) > found["free"]["floor"] * 0.97
    assert all(trial["limit"] < found["works_from"] for trial in failed)
    assert done.stdout.startswith("Smallest memory limit that works: ")
    assert (tmp_path / "fit/fit.png").stat().st_size > 10_000
