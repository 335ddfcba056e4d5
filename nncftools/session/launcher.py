"""Which rank of a job a process is, from the environment variables of its launcher.

This runs before the command starts, so it imports nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class _Launcher(NamedTuple):
    """The variables of one launcher; ``number`` and all of ``also`` must be set."""

    name: str
    number: str
    size: tuple[str, ...]
    local: tuple[str, ...]
    job: tuple[str, ...]
    also: tuple[str, ...] = ()


_LAUNCHERS = (
    _Launcher("torchrun", "RANK", ("WORLD_SIZE",), ("LOCAL_RANK",), ("TORCHELASTIC_RUN_ID",), also=("WORLD_SIZE",)),
    _Launcher(
        "mpi",
        "OMPI_COMM_WORLD_RANK",
        ("OMPI_COMM_WORLD_SIZE",),
        ("OMPI_COMM_WORLD_LOCAL_RANK",),
        ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    ),
    _Launcher("mpi", "PMI_RANK", ("PMI_SIZE",), ("MPI_LOCALRANKID",), ("HYDI_JOB_ID", "PMI_JOBID")),
    _Launcher("mpi", "MV2_COMM_WORLD_RANK", ("MV2_COMM_WORLD_SIZE",), ("MV2_COMM_WORLD_LOCAL_RANK",), ()),
    _Launcher(
        "slurm",
        "SLURM_PROCID",
        ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
        ("SLURM_LOCALID",),
        ("SLURM_JOB_ID",),
        also=("SLURM_STEP_ID",),  # a batch script also has SLURM_PROCID=0 but is not a task of a step
    ),
)
"""The innermost first: a process that torchrun or mpirun started under srun has the variables of both."""


def of(environment: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the fields of ``model.Rank``, or None when no launcher has set them."""
    for launcher in _LAUNCHERS:
        number = _count(environment, (launcher.number,))
        if number is None or not all(name in environment for name in launcher.also):
            continue
        return {
            "number": number,
            "size": _count(environment, launcher.size),
            "local": _count(environment, launcher.local),
            "job": next((environment[name] for name in launcher.job if environment.get(name)), ""),
            "launcher": launcher.name,
        }
    return None


def _count(environment: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    return next((int(environment[name]) for name in names if environment.get(name, "").isdecimal()), None)


def suffix(environment: Mapping[str, str]) -> str:
    """Return the suffix for the names of a rank's files: ``-rank03`` of 16 ranks; empty for a single one.

    After torchrun has restarted a rank, its files have names of their own: ``-restart1-rank03``.
    """
    rank = of(environment)
    if rank is None or rank["size"] == 1:
        return ""
    restart = _count(environment, ("TORCHELASTIC_RESTART_COUNT",)) if rank["launcher"] == "torchrun" else None
    again = f"-restart{restart}" if restart else ""
    return f"{again}-rank{rank['number']:0{len(str(max((rank['size'] or 1) - 1, 0)))}}"
