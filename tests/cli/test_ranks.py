"""Ranks of a job, as launchers start them: real processes with the environment of torchrun and mpirun."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from nncftools.analysis.session import Session
from tests.conftest import HANGING_S, Run, burner, command_line

MIB = 2**20


def torchrun(number: int, size: int = 3) -> dict[str, str]:
    """Return the variables that torchrun sets for a worker."""
    return {"RANK": str(number), "WORLD_SIZE": str(size), "LOCAL_RANK": str(number), "TORCHELASTIC_RUN_ID": "tune"}


class Job(NamedTuple):
    """Three ranks with 20, 40 and 60 MiB at the same time: their folder, output and RSS."""

    folder: Path
    written: list[tuple[str, str]]
    rss: list[float]


def recorded(folder: Path, environment: Any, *options: object) -> Job:  # noqa: ANN401 — a function of the rank
    """Record three ranks at the same time."""
    meeting, place = folder / "meeting", folder / "recorded"
    meeting.mkdir()
    place.mkdir()
    started = [
        subprocess.Popen(
            command_line("monitor --type rss --interval 0.02", *options, *burner("rank", meeting)),
            cwd=place,
            env={**os.environ, "NO_COLOR": "1", **environment(number)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    written = [process.communicate(timeout=HANGING_S) for process in started]
    return Job(place, written, [float((meeting / f"holds-{number}").read_text()) for number in range(3)])


@pytest.fixture(scope="module")
def of_torchrun(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """Record the ranks of torchrun."""
    return recorded(tmp_path_factory.mktemp("torchrun"), torchrun, "--output", "run.json")


@pytest.mark.process
def test_one_job(of_torchrun: Job, in_process: Run) -> None:
    """Each rank writes its own file; `report` merges them and names the rank with the highest peak."""
    files = sorted(of_torchrun.folder.iterdir())
    report = json.loads(in_process("report", *files, "--format", "json").stdout)
    of_ranks = [run["peaks"]["rss"]["low"] for run in report["ranks"]]

    assert [path.name for path in files] == ["run-rank0.json", "run-rank1.json", "run-rank2.json"]
    assert [out for out, _ in of_torchrun.written] == ["0\n", "1\n", "2\n"]
    assert [run["rank"]["number"] for run in report["ranks"]] == [0, 1, 2]
    assert [run["rank"]["job"] for run in report["ranks"]] == ["tune"] * 3
    assert of_ranks == pytest.approx(of_torchrun.rss, rel=0.02)
    assert sum(of_ranks) * 0.98 <= report["peaks"]["rss"]["low"] <= sum(of_ranks)
    assert [warning for warning in report["warnings"] if "samples were missed" not in warning] == []  # a busy machine


@pytest.mark.process
def test_summaries(of_torchrun: Job) -> None:
    """Rank 0 prints its summary, the others a line each, because they share a terminal."""
    told = [err for _, err in of_torchrun.written]
    found = re.fullmatch(r"Rank 2: RSS peak (\d+\.\d) MiB.* exit status 0: run-rank2\.json\n", told[2])

    assert told[0].startswith("Peak memory ")
    assert [err.count("\n") for err in told[1:]] == [1, 1]
    assert found is not None
    assert float(found[1]) * MIB == pytest.approx(of_torchrun.rss[2], rel=0.02)


def test_repeated_runs(tmp_path: Path, nncf_tools: Run) -> None:
    """File names of repeated runs of a rank have both numbers."""
    run = nncf_tools("monitor --quiet -o run.json --repeat 2 true", env=torchrun(1, 16))

    assert run.returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run-1-rank01.json", "run-2-rank01.json"]


@pytest.mark.long
@pytest.mark.process
def test_program_that_records_itself(tmp_path: Path) -> None:
    """A session of the Python API knows its rank, and text logs of ranks do not overwrite each other."""
    program = (
        "import os\nfrom nncftools import Profiler, memory_monitor_context\n"
        "for rank in '01':\n    os.environ['RANK'] = os.environ['LOCAL_RANK'] = rank\n"
        "    with memory_monitor_context(save_dir='logs'): pass\n"
        "with Profiler() as profiler: pass\nprofiler.session.save('own.json')"
    )
    environment = {**os.environ, **torchrun(0, 2)}
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, check=True, timeout=HANGING_S)
    names = {path.name for path in (tmp_path / "logs").iterdir()}
    rank = Session.load(tmp_path / "own.json").rank

    assert {f"rss_memory_usage-rank{number}_from-zero.txt" for number in range(2)} <= names
    assert rank is not None
    assert (rank.number, rank.size, rank.job) == (1, 2, "tune")
