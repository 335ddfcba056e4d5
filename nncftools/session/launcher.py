"""Find the rank of a process in a job, from the environment variables of the launcher.

This runs before the command starts, so the module imports nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class _Launcher(NamedTuple):
    """The variables of one launcher; ``number`` and all of ``required`` must be set."""

    name: str
    number: str
    size: tuple[str, ...]
    local: str
    job: tuple[str, ...] = ()
    required: tuple[str, ...] = ()


_LAUNCHERS = (
    _Launcher(
        name="torchrun",
        number="RANK",
        size=("WORLD_SIZE",),
        local="LOCAL_RANK",
        job=("TORCHELASTIC_RUN_ID",),
        required=("WORLD_SIZE",),
    ),
    _Launcher(
        name="mpi",
        number="OMPI_COMM_WORLD_RANK",
        size=("OMPI_COMM_WORLD_SIZE",),
        local="OMPI_COMM_WORLD_LOCAL_RANK",
        job=("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    ),
    _Launcher(
        name="mpi",
        number="PMI_RANK",
        size=("PMI_SIZE",),
        local="MPI_LOCALRANKID",
        job=("HYDI_JOB_ID", "PMI_JOBID"),
    ),
    _Launcher(
        name="mpi",
        number="MV2_COMM_WORLD_RANK",
        size=("MV2_COMM_WORLD_SIZE",),
        local="MV2_COMM_WORLD_LOCAL_RANK",
    ),
    _Launcher(
        name="slurm",
        number="SLURM_PROCID",
        size=("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
        local="SLURM_LOCALID",
        job=("SLURM_JOB_ID",),
        required=("SLURM_STEP_ID",),  # a batch script also has SLURM_PROCID=0 but is not a task of a step
    ),
)
"""Innermost first: a process that torchrun or mpirun started under srun has the variables of both launchers."""


def of(environment: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the fields of ``model.Rank``, or None if no launcher has set them."""
    for launcher in _LAUNCHERS:
        number = _read_number(environment, launcher.number)
        if number is not None and all(name in environment for name in launcher.required):
            jobs = (environment[name] for name in launcher.job if environment.get(name))
            return {
                "number": number,
                "size": _read_number(environment, *launcher.size),
                "local": _read_number(environment, launcher.local),
                "job": next(jobs, ""),
                "launcher": launcher.name,
            }
    return None


def _read_number(environment: Mapping[str, str], *names: str) -> int | None:
    texts = [environment.get(name, "") for name in names]
    return next((int(text) for text in texts if text.isdecimal()), None)


def suffix(environment: Mapping[str, str]) -> str:
    """Return the suffix for the files of a rank: ``-rank03`` of 16 ranks; empty for a single rank.

    After torchrun has restarted a rank, new files get a suffix with the restart: ``-restart1-rank03``.
    """
    rank = of(environment)
    if rank is None or rank["size"] == 1:
        return ""
    digits = len(str(max((rank["size"] or 1) - 1, 0)))
    rank_suffix = f"-rank{rank['number']:0{digits}}"
    restart = _read_number(environment, "TORCHELASTIC_RESTART_COUNT") if rank["launcher"] == "torchrun" else None
    return f"-restart{restart}{rank_suffix}" if restart else rank_suffix
