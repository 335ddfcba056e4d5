"""Ranks of a job, as launchers start them: real processes with the environment that torchrun and mpirun give."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
from typing import Any

import pytest

from nncftools.session.model import Session
from tests.conftest import HANGING_S, Run, burner, command_line

MIB = 2**20


def torchrun(number: int, size: int = 3) -> dict[str, str]:
    """Return what torchrun puts into the environment of a worker."""
    return {"RANK": str(number), "WORLD_SIZE": str(size), "LOCAL_RANK": str(number), "TORCHELASTIC_RUN_ID": "tune"}


def mpirun(number: int, size: int = 3) -> dict[str, str]:
    """Return what Open MPI's mpirun puts into the environment of a rank."""
    prefix = "OMPI_COMM_WORLD"
    counts = {f"{prefix}_RANK": str(number), f"{prefix}_SIZE": str(size), f"{prefix}_LOCAL_RANK": str(number)}
    return {**counts, "PMIX_NAMESPACE": "tune"}


def recorded(folder: pathlib.Path, environment: Any, *options: object) -> list[tuple[str, str]]:  # noqa: ANN401 — a function of the rank
    """Record three ranks at the same time; return what each wrote to both of its streams."""
    started = [
        subprocess.Popen(
            command_line("monitor", "--type", "rss", "--interval", 0.02, *options, *burner("rank")),
            cwd=folder,
            env={**os.environ, "NO_COLOR": "1", **environment(number)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    return [process.communicate(timeout=HANGING_S) for process in started]


@pytest.mark.parametrize("launcher", [torchrun, mpirun])
def test_one_job(launcher: Any, tmp_path: pathlib.Path, nncf_tools: Run) -> None:  # noqa: ANN401 — a function of the rank
    """Each rank writes a file of its own; `report` puts them together, with the rank that held most."""
    written = recorded(tmp_path, launcher, "--output", "run.json")
    report = json.loads(nncf_tools("report", *sorted(tmp_path.glob("run-rank*.json")), "--format", "json").stdout)
    of_ranks = [run["peaks"]["rss"]["low"] for run in report["ranks"]]

    assert sorted(path.name for path in tmp_path.iterdir()) == ["run-rank0.json", "run-rank1.json", "run-rank2.json"]
    assert [out for out, _ in written] == ["0\n", "1\n", "2\n"]
    assert [run["rank"]["number"] for run in report["ranks"]] == [0, 1, 2]
    assert [run["rank"]["job"] for run in report["ranks"]] == ["tune"] * 3
    assert [peak // (20 * MIB) for peak in of_ranks] == [1, 2, 3]
    assert max(of_ranks) < report["peaks"]["rss"]["low"] <= sum(of_ranks)
    assert report["warnings"] == []


def test_summaries(tmp_path: pathlib.Path) -> None:
    """The first rank tells its summary, the others a line each: they share a terminal."""
    told = [err for _, err in recorded(tmp_path, torchrun, "--output", "run.json")]

    assert told[0].startswith("PERFORMANCE REPORT")
    assert [err.count("\n") for err in told[1:]] == [1, 1]
    assert told[2].startswith("Rank 2: RSS peak 6")
    assert told[2].endswith("exit status 0: run-rank2.json\n")


def test_folders(tmp_path: pathlib.Path, nncf_tools: Run) -> None:
    """In the log folder each rank has a folder of its own, and folders can be put together, too."""
    recorded(tmp_path, torchrun, "--no-plot")
    folders = sorted(path for path in (tmp_path / "memory_logs").iterdir() if not path.is_symlink())
    text = nncf_tools("report", *folders).stdout

    assert [path.name.partition("_rank")[0][-5:] for path in folders]
    assert [path.name[-6:] for path in folders] == ["-rank0", "-rank1", "-rank2"]
    assert "3 ranks" in text
    assert text.count("<- largest") == 1


def test_repeated_runs(tmp_path: pathlib.Path, nncf_tools: Run) -> None:
    """Repeated runs of a rank have both numbers in their names."""
    run = nncf_tools("monitor", "--quiet", "-o", "run.json", "--repeat", 2, "true", env=torchrun(1, 16))

    assert run.returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run-1-rank01.json", "run-2-rank01.json"]


def test_failing_rank(nncf_tools: Run) -> None:
    """A rank other than the first tells how its command ended, and ends with its status."""
    run = nncf_tools("monitor", "-o", "run.json", "sh", "-c", "exit 7", env=torchrun(1))

    assert run.returncode == 7
    assert "exit status 7: run-rank1.json" in run.stderr


def test_not_written_over(tmp_path: pathlib.Path, nncf_tools: Run) -> None:
    """A rank's file that exists is kept."""
    (tmp_path / "run-rank1.json").write_text("mine")
    run = nncf_tools("monitor", "-o", "run.json", "true", env=torchrun(1))

    assert run.returncode == 2
    assert "run-rank1.json' exists" in run.stderr
    assert (tmp_path / "run-rank1.json").read_text() == "mine"


def test_sidecars_that_a_pattern_matches(tmp_path: pathlib.Path, nncf_tools: Run) -> None:
    """Sidecars of a profile among the files are no recordings, but hold their marks."""
    for number in range(2):
        words = ("profile", "--quiet", "--no-plot", "-o", "run.json", "true")
        assert nncf_tools(*words, env=torchrun(number, 2)).returncode == 0
    files = sorted(tmp_path.glob("run-rank*.json"))
    (tmp_path / "run-rank1.marks.json").write_text('[{"name": "Mine", "start_s": 0}]')
    (tmp_path / "run-rank0.marks.json").write_text('[{"name": "Mine", "start_s": 0}]')
    run = nncf_tools("report", *files)

    assert len(files) == 4
    assert run.returncode == 0
    assert "Mine" in run.stdout


def test_two_recordings_of_one_rank(tmp_path: pathlib.Path, nncf_tools: Run) -> None:
    """Files that cannot be of one job are refused in a line that names them."""
    session = tmp_path / "a.json"
    nncf_tools("monitor", "--quiet", "-o", "a.json", "true", env=torchrun(1))
    session.write_bytes((tmp_path / "a-rank1.json").read_bytes())
    run = nncf_tools("report", "a.json", "a-rank1.json")

    assert run.returncode == 1
    assert run.stderr.endswith("a.json and a-rank1.json are both of rank 1: name the recordings of one job\n")


def test_the_same_file_twice(tmp_path: pathlib.Path, nncf_tools: Run) -> None:
    """A recording counts once, however its path is written."""
    nncf_tools("monitor", "--quiet", "-o", "a.json", "true", env=torchrun(1))
    run = nncf_tools("report", "a-rank1.json", tmp_path / "a-rank1.json")

    assert run.returncode == 2
    assert "is given twice" in run.stderr


def test_a_rank_alone(nncf_tools: Run) -> None:
    """The report of a single rank says that it is one, and of how many."""
    nncf_tools("monitor", "--quiet", "-o", "a.json", "true", env=torchrun(1))

    assert ", rank 1 of 3, " in nncf_tools("report", "a-rank1.json").stdout


def test_ranks_are_no_repeated_runs(nncf_tools: Run) -> None:
    """Ranks are not compared as if they were runs of one command."""
    for number in range(2):
        nncf_tools("monitor", "--quiet", "-o", "a.json", "true", env=torchrun(number, 2))
    run = nncf_tools("compare", "--base", "a-rank*.json", "--new", "a-rank1.json")

    assert run.returncode == 2
    assert run.stderr.count("\n") == 1


def test_logs_of_the_memory_monitor(tmp_path: pathlib.Path) -> None:
    """Text logs of the ranks of a program that records itself do not write over each other either."""
    program = "from nncftools import memory_monitor_context\nwith memory_monitor_context(save_dir='logs'): pass"
    for number in range(2):
        environment = {**os.environ, **torchrun(number, 2)}
        words = [*burner("tell")[:1], "-c", program]
        subprocess.run(words, cwd=tmp_path, env=environment, check=True, timeout=HANGING_S)
    names = {path.name for path in (tmp_path / "logs").iterdir()}

    assert {f"rss_memory_usage-rank{number}_from-zero.txt" for number in range(2)} <= names


def test_the_rank_of_a_program_that_records_itself(tmp_path: pathlib.Path) -> None:
    """A session of the Python API knows its rank, too."""
    program = "from nncftools import Profiler\nwith Profiler() as p: pass\np.session.save('own.json')"
    environment = {**os.environ, **torchrun(2)}
    subprocess.run([*burner("tell")[:1], "-c", program], cwd=tmp_path, env=environment, check=True, timeout=HANGING_S)
    rank = Session.load(tmp_path / "own.json").rank

    assert rank is not None
    assert (rank.number, rank.size, rank.job) == (2, 3, "tune")
