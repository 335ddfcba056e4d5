"""Real files of each kind that nncf-tools reads: those of ``tests/data``, and the logs of other tools.

``tests/data/fuzz`` has a session in which every field is filled, and a recording with every kind of line.
"""

from __future__ import annotations

import dataclasses
import gzip
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fuzz import interpreters
from tests.importers.logs import INFO, INFO_KIB, LOGS, USAGE, USAGE_KIB

if TYPE_CHECKING:
    from collections.abc import Mapping

DATA = Path(__file__).parents[1] / "data"
SESSION = "session"
"""Read by ``report``."""
MARKS = "marks"
"""By ``report`` with ``--marks``."""
TABLE = "table"
"""By ``viz-compression``."""
EVALUATION, SIMILARITY = "evaluation", "similarity"
"""By ``from-lm-eval``."""
PROJECT = "project"
"""By ``profile``, which reads pyproject.toml."""
INTERPRETER, PROGRAM = "interpreter", "program"
"""By the helper that reads stacks: the memory of a Python, and its program."""


@dataclasses.dataclass(frozen=True)
class Sample:
    """A file to damage, and those next to it."""

    name: str
    content: bytes
    reader: str = SESSION
    beside: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    opened: str = ""
    """The file to open, if it is another one."""


def samples() -> list[Sample]:
    """Return one sample or more of each kind of file."""
    kept = [path for path in sorted((DATA / "version_1").iterdir()) if path.is_file() and ".marks." not in path.name]
    whole = {path.name: path.read_bytes() for path in (DATA / "fuzz").iterdir()}
    runs = {path.name: path.read_bytes() for path in (DATA / "runs").iterdir() if path.is_file()}
    recorded = {"whole.journal.jsonl": whole["whole.journal.jsonl"]}
    plain = {"run.json": runs["export.json"]}
    sidecar = (DATA / "version_1/profiled.marks.json").read_bytes()
    marks = whole["whole.marks.jsonl"]
    table = runs["more.csv"]
    return [
        *(Sample(path.name, path.read_bytes()) for path in kept),
        Sample("everything.json", whole["everything.json"]),
        Sample("everything.json.gz", gzip.compress(whole["everything.json"], mtime=0)),
        Sample("unknown.json", runs["unknown.json"]),
        Sample("whole.journal.jsonl", recorded["whole.journal.jsonl"]),
        Sample("whole.marks.jsonl", marks, beside=recorded, opened="whole.journal.jsonl"),
        Sample("whole.snapshots.jsonl", whole["whole.snapshots.jsonl"], beside=recorded, opened="whole.journal.jsonl"),
        Sample("run.marks.json", sidecar, beside=plain, opened="run.json"),
        Sample("run.marks.jsonl", marks, beside=plain, opened="run.json"),
        Sample("run.marks.csv", table, beside=plain, opened="run.json"),
        Sample("more.csv", table, MARKS, plain, "run.json"),
        Sample("semicolons.csv", table.replace(b",", b";"), MARKS, plain, "run.json"),
        Sample("more.json", sidecar, MARKS, plain, "run.json"),
        *(
            Sample(name, content, beside={"usage.jsonl": USAGE} if name == "info.json" else {"info.json": INFO})
            for name, (content, _) in LOGS.items()
        ),
        Sample("x_info.json", INFO_KIB, beside={"x_usage.json": USAGE_KIB}),
        Sample("psrecord.txt.gz", gzip.compress(LOGS["psrecord.txt"][0], mtime=0)),
        Sample("results.csv", (DATA / "made_up_compression.csv").read_bytes(), TABLE),
        Sample("measured.csv", runs["measured.csv"], TABLE),
        Sample("results.json", runs["results.json"], EVALUATION),
        Sample("metrics.csv", runs["metrics.csv"], SIMILARITY),
        Sample("pyproject.toml", whole["pyproject.toml"], PROJECT),
        *(Sample(f"memory.{version}", interpreters.image(version), INTERPRETER) for version in interpreters.VERSIONS),
        Sample("python.elf", interpreters.program(), PROGRAM),
    ]
