"""The work on one configuration, as data: it may be done here or on another machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nncftools.compression.sweep.row import Row

MODEL, TEXT, LAST_WORDS, PROMPTS, CALIBRATION, KIND = "model", "text", "lambada", "prompts", "calibration", "kind"
"""What the inputs are for; the keys of ``Task.inputs``."""


class Task(msgspec.Struct, frozen=True):
    """What to run for one configuration, and with which inputs."""

    name: str
    settings: dict[str, Any]
    mode: str
    int4: float
    int8: float
    rank: int | None
    is_baseline: bool
    needs_data: bool
    inputs: dict[str, str]
    """Paths by what they are for: the exported model, texts, the user's file."""
    folder: str
    """Where recordings and logs go."""
    python: str
    """The interpreter that has NNCF and OpenVINO."""
    max_memory: int | None = None
    keep_model: bool = False
    tasks: list[str] = []
    """Tasks of lm-evaluation-harness, each also with a metric: ``arc_easy:acc``."""
    include_path: str = ""
    """A folder with tasks of the user's."""
    code: str = ""
    """The user's file, for a model of another kind."""
    reference: list[list[int]] | None = None
    """The baseline's continuations of the prompts."""


class Executor(Protocol):
    """Runs tasks, here or elsewhere."""

    def run(self, tasks: Sequence[Task], ended: Callable[[Row], None]) -> bool:
        """Run tasks, and give each row to ``ended`` as soon as it is there; return False if it was interrupted."""
        ...
