"""The results of a sweep: a row for each configuration, the table, and definitions of the columns.

A sweep also has a folder. In the folder, each configuration has a subfolder with its row, recordings and logs.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from nncftools import intake
from nncftools.cli import destination
from nncftools.cli.sweep.grid import Configuration
from nncftools.compression import reading
from nncftools.compression.checking import FAILED
from nncftools.compression.filling import GIB
from nncftools.compression.reading import BIT_WIDTHS, BITS_PER_WEIGHT, DESCRIBING, INT4, INT8, PLOT_NAME, SIZE, STDERR
from nncftools.errors import NncfToolsError
from nncftools.files import write_file
from nncftools.markdown import draw_csv, text

COMPRESSION = reading.TIME.column
PEAK = reading.PEAK.column
PEAK_HIGH = reading.PEAK.high_column
INFERENCE_PEAK = reading.INFERENCE_PEAK.column
FIRST_TOKEN = reading.FIRST_TOKEN.column
PER_TOKEN = reading.LATENCY.column
INFERENCE = "inference, s"
_MIB = 2**20


class SweepRow(msgspec.Struct):
    """The results of a configuration. Sizes are in bytes, durations in seconds; None is an unknown value."""

    name: str
    settings: dict[str, Any]
    """The settings in the grid. If they change, the configuration must run again."""
    mode: str
    int4: float
    int8: float
    rank: int | None = None
    size: int | None = None
    """Total size of the weight files (``.bin``) in bytes; None if unknown."""
    figures: dict[str, tuple[float, float | None]] = {}
    """Value and standard error by column: ``{"score": (0.93, None)}``."""
    compression_s: float | None = None
    peak: int | None = None
    """Lower bound of the peak RSS during compression, in bytes; None if unknown. ``peak_high`` is the upper bound."""
    peak_high: int | None = None
    owner: str = ""
    inference_peak: int | None = None
    first_token_s: float | None = None
    per_token_s: float | None = None
    inference_s: float | None = None
    """Median duration of a call of the model, in seconds; None for a language model."""
    widths: dict[str, int] = {}
    """Number of weights by bit width: ``{"int4": 1000, "int8": 200}``."""
    failed: str = ""
    measured_s: float = 0.0
    """Total duration of the measured processes, in seconds."""
    wall_s: float = 0.0
    """Total duration in seconds, including the work of the sweep itself."""
    continuations: list[list[int]] = []
    """The tokens that the baseline generates after each prompt, for comparison. Other configurations have none."""

    @property
    def is_complete(self) -> bool:
        """Whether the configuration succeeded."""
        return not self.failed

    @property
    def bits(self) -> float | None:
        """Size of the file in bits, divided by the number of weights; so scales and zero points count, too."""
        weights = sum(self.widths.values())
        return None if self.size is None or not weights else self.size * 8 / weights


def make_table(model: str, setup: str, rows: Sequence[SweepRow]) -> str:
    """Return the results as CSV. Unknown cells are empty. A failed configuration has no size and no quality."""
    columns = [setup, *DESCRIBING]
    for column in quality_columns(rows):
        columns += [column, column + STDERR]
    cells = ({setup: model, **_make_cells(row)} for row in rows)
    return draw_csv([*columns, *measured_columns(rows)], cells)


def quality_columns(rows: Sequence[SweepRow]) -> list[str]:
    """Return the quality columns that at least one row has, without duplicates."""
    columns: dict[str, None] = {}
    for row in rows:
        columns |= dict.fromkeys(row.figures)
    return list(columns)


def measured_columns(rows: Sequence[SweepRow]) -> list[str]:
    """Return the columns that follow the quality columns: times, memory, bits, and failure.

    The inference times of a language model are per token; the inference time of another model is per call.
    """
    times = [INFERENCE] if any(row.inference_s is not None for row in rows) else [FIRST_TOKEN, PER_TOKEN]
    peaks = [PEAK, PEAK_HIGH, reading.PEAK_OWNER, INFERENCE_PEAK]
    return [COMPRESSION, *peaks, *times, BITS_PER_WEIGHT, BIT_WIDTHS, FAILED]


def describe_widths(widths: dict[str, int]) -> str:
    """Return the shares of weights by width: ``int4 84%, int8 16%``; empty if unknown."""
    total = sum(widths.values())
    texts: list[str] = []
    for name in sorted(widths, key=widths.__getitem__, reverse=True):
        share = widths[name] / total
        if share >= 0.005:  # noqa: PLR2004 — a smaller share is rounded to 0
            texts.append(f"{name} {share:.0%}")
    return ", ".join(texts)


def _make_cells(row: SweepRow) -> dict[str, str]:
    cells = {
        reading.MODE: row.mode,
        INT4: f"{row.int4:g}",
        INT8: f"{row.int8:g}",
        reading.LORA_RANK: "" if row.rank is None else str(row.rank),
        PLOT_NAME: row.name if row.rank is not None or row.name != row.mode else "",
        reading.PEAK_OWNER: row.owner,
        FAILED: row.failed,
    }
    sizes = {PEAK: row.peak, PEAK_HIGH: row.peak_high, INFERENCE_PEAK: row.inference_peak}
    figures = {
        COMPRESSION: row.compression_s,
        INFERENCE: row.inference_s,
        FIRST_TOKEN: row.first_token_s,
        PER_TOKEN: row.per_token_s,
    }
    if row.is_complete:
        cells[BIT_WIDTHS] = describe_widths(row.widths)
        figures[SIZE] = None if row.size is None else row.size / GIB
        figures[BITS_PER_WEIGHT] = row.bits
        for column, (value, stderr) in row.figures.items():
            figures[column] = value
            figures[column + STDERR] = stderr
    cells |= {column: f"{size / _MIB:.0f}" for column, size in sizes.items() if size is not None}
    return cells | {column: f"{value:.5g}" for column, value in figures.items() if value is not None}


_Kept = TypeVar("_Kept", "State", SweepRow)

ENDING = ".sweep"
_STATE = "sweep.json"
ROW = "row.json"
_PIECE = 1 << 20
_HASHED = 64 << 20
"""Largest file that is hashed, in bytes. The digest of a larger file is made from size and time of the last write."""


class State(msgspec.Struct):
    """The model, setup and inputs of a sweep. An interrupted sweep can only continue if these have not changed."""

    model: str
    setup: str
    inputs: dict[str, str]
    """Digests of the inputs: ``{"model": "1f3a…", "text": "90bc…"}``."""
    version: int = 1


class SweepFolder:
    """The folder of a sweep, beside the CSV file."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self.path = output.with_name(output.name.removesuffix(".csv") + ENDING)

    def of(self, name: str) -> Path:
        """Return the folder of a configuration."""
        plain = re.sub(r"[^\w+-]+", "_", name).strip("_")
        digest = hashlib.sha256(name.encode()).hexdigest()[:4]
        return self.path / f"{plain}-{digest}"

    def state(self) -> State | None:
        """Return the state of an earlier sweep; None if there is none. Raises NncfToolsError."""
        return _read(self.path / _STATE, State)

    @property
    def is_foreign(self) -> bool:
        """Whether the folder has files, but is not the folder of a sweep."""
        try:
            names = [path.name for path in self.path.iterdir()]
            return _STATE not in names and not all(name.startswith(".") for name in names)
        except FileNotFoundError:
            return False
        except NotADirectoryError:
            return self.path.exists()

    def locked(self) -> AbstractContextManager[None]:
        """Make and lock the folder, so that only a single sweep runs there; see ``destination.lock_folder``."""
        return destination.lock_folder("--output", self.path, f"another sweep runs in {str(self.path)!r}")

    def check(self) -> None:
        """Make the folder again if the folder is missing.

        Raises UsageError if another user has made a folder in the same place.
        """
        destination.open_folder("--output", self.path).close()

    def begin(self, state: State) -> None:
        """Write the state of the sweep. Raises OSError."""
        self.check()
        write_file(self.path / _STATE, msgspec.json.format(msgspec.json.encode(state)))

    def rows(self, grid: Sequence[Configuration]) -> dict[str, SweepRow]:
        """Return the rows of a grid by name, except for configurations whose settings have changed.

        Raises NncfToolsError if a row is damaged.
        """
        rows: dict[str, SweepRow] = {}
        for configuration in grid:
            try:
                row = _read(self.of(configuration.name) / ROW, SweepRow)
            except NncfToolsError as error:
                raise NncfToolsError(f"{error}; remove that file to run its configuration again") from error
            if row is not None and row.settings == configuration.settings():
                rows[configuration.name] = row
        return rows

    def keep(self, row: SweepRow) -> None:
        """Write a row. Raises OSError."""
        self.check()
        folder = self.of(row.name)
        folder.mkdir(exist_ok=True)
        write_file(folder / ROW, msgspec.json.encode(row))

    def clear(self, name: str) -> Path:
        """Make an empty folder for a configuration, and return the path. Raises OSError.

        The old folder is renamed first: processes of a killed sweep may still write into that folder.
        """
        self.check()
        folder = self.of(name)
        if folder.exists():
            old = folder.with_name(f".{os.urandom(4).hex()}.{folder.name}")
            folder.rename(old)
            shutil.rmtree(old, ignore_errors=True)
        folder.mkdir()
        return folder

    def write_table(self, state: State, rows: Sequence[SweepRow]) -> None:
        """Write the CSV file, completely or not at all. Raises OSError."""
        self.check()
        write_file(self.output, make_table(state.model, state.setup, rows).encode())


def make_stamp(path: str | Path) -> str:
    """Return a digest of a file or folder, which differs after every change.

    Raises NncfToolsError if a file cannot be read.
    """
    path = Path(path)
    files = list_files(path)
    if path.is_dir():
        files = sorted(filter(Path.is_file, path.rglob("*")))
    digest = hashlib.sha256()
    try:
        for file in files:
            status = file.stat()
            digest.update(f"{file.name} {status.st_size}\n".encode())
            if status.st_size > _HASHED:
                digest.update(f"{status.st_mtime_ns}".encode())
                continue
            with file.open("rb") as opened:
                while piece := opened.read(_PIECE):
                    digest.update(piece)
    except OSError as error:
        raise NncfToolsError(f"cannot read {str(path)!r}: {error.strerror or error}") from error
    return digest.hexdigest()[:32]


def list_files(path: Path) -> list[Path]:
    """Return the files of an input: the file, and for a model in OpenVINO's format (.xml) also the weights."""
    weights = path.with_suffix(".bin")
    return [path, weights] if path.suffix == ".xml" and weights.is_file() else [path]


def explain_difference(earlier: State, now: State) -> str:
    """Return why a sweep cannot continue an earlier sweep; empty if there is no difference."""
    if (earlier.model, earlier.setup) != (now.model, now.setup):
        return f"it was made with {earlier.model!r} ({earlier.setup}), not with {now.model!r} ({now.setup})"
    differences = set(earlier.inputs.items()) ^ set(now.inputs.items())
    names = sorted({name for name, _ in differences})
    return f"it was made with a different {' and a different '.join(names)}" if names else ""


def _read(file: Path, kind: type[_Kept]) -> _Kept | None:
    if not os.path.lexists(file):
        return None
    try:
        return msgspec.json.decode(intake.read_file(file, may_wait=False), type=kind)
    except msgspec.MsgspecError as error:
        raise NncfToolsError(f"{file}: cannot be read: {error}") from error


_LAST_WORD = "of the last word of each passage, predicted from all words before, as in the lambada task"
_RIGHT = "share of right guesses (a guess is right if each token is the most probable token)"
_PASSAGES = "passages are whole sentences of the text, at least 40 words"
DEFINITIONS = {
    INT4: "requested share of layers compressed to 4 bits, without embeddings",
    INT8: "requested share of layers compressed to 8 bits, without embeddings",
    PLOT_NAME: "name of the configuration in the grid",
    SIZE: "weights on disk (.bin), in GiB",
    "held-out text, word perplexity": "exp(−sum of log-likelihoods ÷ number of words); whitespace separates words; "
    "rolling log-likelihood as in lm-evaluation-harness, with windows of at most 2,048 tokens",
    "held-out text, last-word acc": f"{_RIGHT} {_LAST_WORD}; {_PASSAGES}",
    "held-out text, last-word perplexity": f"exp(−mean log-likelihood) {_LAST_WORD}; {_PASSAGES}",
    "passages, last-word acc": f"{_RIGHT} {_LAST_WORD}; passages are lines",
    "passages, last-word perplexity": f"exp(−mean log-likelihood) {_LAST_WORD}; passages are lines",
    "prompts, similarity": "similarity of two greedy continuations (32 tokens each), by this model and by the "
    "baseline: 2 × number of matching tokens ÷ number of all tokens (difflib.SequenceMatcher); mean over prompts; 1 "
    "is the same text",
    "score": "return value of the user's function `score`",
    COMPRESSION: "time of nncf.compress_weights or nncf.quantize",
    PEAK: "lower bound of the peak RSS of reading, compressing and saving the model, with child processes",
    PEAK_HIGH: "upper bound of the peak RSS of reading, compressing and saving the model, with child processes",
    reading.PEAK_OWNER: "operation or place in the code at the peak RSS of reading, compressing and saving the model",
    INFERENCE_PEAK: "lower bound of the peak RSS of the evaluation, which reads logits in steps of 128 tokens",
    FIRST_TOKEN: "time to the first new token, median over prompts",
    PER_TOKEN: "time per further token of a greedy continuation of 32 tokens, median over prompts",
    INFERENCE: "duration of a call of the model, median over up to 20 calibration items",
    BITS_PER_WEIGHT: "bits of the file per weight, with scales and zero points",
    BIT_WIDTHS: "share of the weights with each bit width; only weights in matrices count",
    FAILED: "why the configuration failed",
}
_TASK = "defined by lm-evaluation-harness"
ERRORS = (
    f"Columns that end in {STDERR!r} are standard errors. The observations are passages or prompts; for word "
    "perplexity, they are blocks of 64 tokens, which are taken as independent."
)


def define_columns(columns: Iterable[str]) -> str:
    """Return the definitions of the columns in Markdown."""
    lines = [f"- **{text(column)}**: {text(DEFINITIONS.get(column, _TASK))}" for column in columns]
    return "\n\n## Columns\n\n" + "\n".join([*lines, "", ERRORS]) + "\n"
