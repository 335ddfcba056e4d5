"""Tests of the rank that a launcher gives in the environment."""

from __future__ import annotations

import pytest

from nncftools.session import launcher

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "TORCHELASTIC_RUN_ID": "tune"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "16",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "PMIX_NAMESPACE": "tune",
}
HYDRA = {"PMI_RANK": "3", "PMI_SIZE": "16", "MPI_LOCALRANKID": "1", "HYDI_JOB_ID": "tune"}
MVAPICH = {"MV2_COMM_WORLD_RANK": "3", "MV2_COMM_WORLD_SIZE": "16", "MV2_COMM_WORLD_LOCAL_RANK": "1"}
SLURM = {
    "SLURM_PROCID": "3",
    "SLURM_STEP_NUM_TASKS": "16",
    "SLURM_NTASKS": "32",
    "SLURM_LOCALID": "1",
    "SLURM_JOB_ID": "tune",
    "SLURM_STEP_ID": "0",
}


@pytest.mark.parametrize(
    "environment, name, job",
    [
        (TORCHRUN, "torchrun", "tune"),
        (OPEN_MPI, "mpi", "tune"),
        (HYDRA, "mpi", "tune"),
        (MVAPICH, "mpi", ""),
        (SLURM, "slurm", "tune"),
    ],
)
def test_launchers(environment: dict[str, str], name: str, job: str) -> None:
    """Each launcher's variables tell number, size, number on the machine and job."""
    expected = {"number": 3, "size": 16, "local": 1, "job": job, "launcher": name}

    assert launcher.read_rank(environment) == expected


def test_what_started_it_last_counts() -> None:
    """Of torchrun or mpirun within a step of Slurm, the inner launcher is taken."""
    both = [launcher.read_rank({**SLURM, **inner, "SLURM_PROCID": "0"}) for inner in (TORCHRUN, OPEN_MPI)]

    assert [of and (of["launcher"], of["number"]) for of in both] == [("torchrun", 3), ("mpi", 3)]


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"RANK": "3"},
        {"RANK": "general", "WORLD_SIZE": "2"},
        {name: value for name, value in SLURM.items() if name != "SLURM_STEP_ID"},
    ],
    ids=["nothing", "RANK alone", "no number", "batch script of Slurm"],
)
def test_no_rank(environment: dict[str, str]) -> None:
    """Variables that do not say that there are ranks say nothing."""
    assert launcher.read_rank(environment) is None


@pytest.mark.parametrize(
    "environment, suffix",
    [
        ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "16"}, "-rank03"),
        ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "10"}, "-rank3"),
        ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": ""}, "-rank3"),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}, ""),
        ({**TORCHRUN, "TORCHELASTIC_RESTART_COUNT": "0"}, "-rank03"),
        ({**TORCHRUN, "TORCHELASTIC_RESTART_COUNT": "2"}, "-restart2-rank03"),
        ({"RANK": "3"}, ""),
    ],
)
def test_suffix(environment: dict[str, str], suffix: str) -> None:
    """Names of files sort as the ranks do, and count restarts; one that is alone keeps its name."""
    assert launcher.make_suffix(environment) == suffix
