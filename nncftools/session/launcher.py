"""Find the rank of a process in a job, from the environment variables of the launcher (torchrun, MPI, Slurm).

The rank is needed before the command starts, so this module imports almost nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_LAUNCHERS = (
    ("torchrun", "RANK", ("WORLD_SIZE",), "LOCAL_RANK", ("TORCHELASTIC_RUN_ID",), "WORLD_SIZE"),
    (
        "mpi",
        "OMPI_COMM_WORLD_RANK",
        ("OMPI_COMM_WORLD_SIZE",),
        "OMPI_COMM_WORLD_LOCAL_RANK",
        ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
        "",
    ),
    ("mpi", "PMI_RANK", ("PMI_SIZE",), "MPI_LOCALRANKID", ("HYDI_JOB_ID", "PMI_JOBID"), ""),
    ("mpi", "MV2_COMM_WORLD_RANK", ("MV2_COMM_WORLD_SIZE",), "MV2_COMM_WORLD_LOCAL_RANK", (), ""),
    # Slurm also sets SLURM_PROCID=0 for a batch script, but a batch script is not a rank
    (
        "slurm",
        "SLURM_PROCID",
        ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
        "SLURM_LOCALID",
        ("SLURM_JOB_ID",),
        "SLURM_STEP_ID",
    ),
)
"""A tuple for each launcher: the name; the environment variables for rank, number of ranks, rank on this machine, and
job; and a variable that must exist, or an empty text. The first match counts: if srun started torchrun or mpirun, a
process has the variables of both launchers."""


def read_rank(environment: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the fields of ``model.Rank``; None if no launcher has set the variables."""
    for launcher, rank_name, size_names, local_name, job_names, required in _LAUNCHERS:
        number = _read_number(environment, rank_name)
        if number is not None and (not required or required in environment):
            jobs = (environment[name] for name in job_names if environment.get(name))
            return {
                "number": number,
                "size": _read_number(environment, *size_names),
                "local": _read_number(environment, local_name),
                "job": next(jobs, ""),
                "launcher": launcher,
            }
    return None


def _read_number(environment: Mapping[str, str], *names: str) -> int | None:
    texts = [environment.get(name, "") for name in names]
    return next((int(text) for text in texts if text.isdecimal()), None)


def make_suffix(environment: Mapping[str, str]) -> str:
    """Return a suffix for the file names of a rank: ``-rank03`` in a job of 16 ranks; empty for a single rank.

    If torchrun has restarted the rank, the suffix also has the number of the restart: ``-restart1-rank03``.
    """
    rank = read_rank(environment)
    if rank is None or rank["size"] == 1:
        return ""
    digits = len(str(max((rank["size"] or 1) - 1, 0)))
    rank_suffix = f"-rank{rank['number']:0{digits}}"
    restart = _read_number(environment, "TORCHELASTIC_RESTART_COUNT") if rank["launcher"] == "torchrun" else None
    return f"-restart{restart}{rank_suffix}" if restart else rank_suffix
