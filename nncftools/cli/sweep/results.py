"""The results of a sweep: a row for each configuration that ended, the table of them, and what each column means.

Beside its results a sweep keeps a folder for each configuration, with its row, recordings and logs.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import re
import shutil
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
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

COMPRESSION, INFERENCE_PEAK = reading.TIME.column, reading.INFERENCE_PEAK.column
PEAK, PEAK_HIGH, PEAK_OWNER = reading.PEAK.column, reading.PEAK.high_column, reading.PEAK_OWNER
FIRST_TOKEN, PER_TOKEN, INFERENCE = reading.FIRST_TOKEN.column, reading.LATENCY.column, "inference, s"
_MIB = 2**20


class SweepRow(msgspec.Struct):
    """What is known of a configuration that ended; bytes and seconds, None is unknown."""

    name: str
    settings: dict[str, Any]
    """Those of the grid: a configuration that was changed is run again."""
    mode: str
    int4: float
    int8: float
    rank: int | None = None
    size: int | None = None
    """Of the weights on disk."""
    figures: dict[str, tuple[float, float | None]] = {}
    """Value and standard error by column."""
    compression_s: float | None = None
    peak: int | None = None
    """Of compression, the low end of the bracket."""
    peak_high: int | None = None
    owner: str = ""
    inference_peak: int | None = None
    first_token_s: float | None = None
    per_token_s: float | None = None
    inference_s: float | None = None
    """One call, for a model that is no language model."""
    widths: dict[str, int] = {}
    """The number of weights by their width."""
    failed: str = ""
    measured_s: float = 0.0
    """The time of its processes."""
    wall_s: float = 0.0
    """From its start to its end, with what the sweep itself does."""
    continuations: list[list[int]] = []
    """The tokens that follow the prompts; of the baseline, the others are compared with them."""

    @property
    def is_complete(self) -> bool:
        """Whether it did not fail."""
        return not self.failed

    @property
    def bits(self) -> float | None:
        """How many bits of the file a weight takes, with scales and zero points."""
        weights = sum(self.widths.values())
        return None if self.size is None or not weights else self.size * 8 / weights


def table(model: str, setup: str, rows: Sequence[SweepRow]) -> str:
    """Return the CSV file of the results. An empty cell is unknown; a row that failed has no size and no quality."""
    quality = dict.fromkeys(column for row in rows for column in row.figures)
    columns = [setup, *DESCRIBING, *(part for column in quality for part in (column, column + STDERR))]
    return draw_csv([*columns, *measured_columns(rows)], ({setup: model, **_cells(row)} for row in rows))


def measured_columns(rows: Sequence[SweepRow]) -> list[str]:
    """Return the columns after those of quality: a language model has times per token, another one that of a call."""
    times = [INFERENCE] if any(row.inference_s is not None for row in rows) else [FIRST_TOKEN, PER_TOKEN]
    return [COMPRESSION, PEAK, PEAK_HIGH, PEAK_OWNER, INFERENCE_PEAK, *times, BITS_PER_WEIGHT, BIT_WIDTHS, FAILED]


def widths_text(widths: dict[str, int]) -> str:
    """Return the shares of weights by their width: ``int4 84%, int8 16%``; empty for unknown."""
    whole = sum(widths.values())
    shares = sorted(((size / whole, name) for name, size in widths.items()), reverse=True) if whole else []
    return ", ".join(f"{name} {share:.0%}" for share, name in shares if share >= 0.005)  # noqa: PLR2004 — rounds to 0


def _cells(row: SweepRow) -> dict[str, str]:
    texts = {
        reading.MODE: row.mode,
        INT4: f"{row.int4:g}",
        INT8: f"{row.int8:g}",
        reading.LORA_RANK: "" if row.rank is None else str(row.rank),
        PLOT_NAME: row.name if row.rank is not None or row.name != row.mode else "",
        PEAK_OWNER: row.owner,
        FAILED: row.failed,
    }
    sizes = {PEAK: row.peak, PEAK_HIGH: row.peak_high, INFERENCE_PEAK: row.inference_peak}
    figures = {COMPRESSION: row.compression_s, INFERENCE: row.inference_s}
    figures |= {FIRST_TOKEN: row.first_token_s, PER_TOKEN: row.per_token_s}
    if row.is_complete:
        texts[BIT_WIDTHS] = widths_text(row.widths)
        figures |= {SIZE: None if row.size is None else row.size / GIB, BITS_PER_WEIGHT: row.bits}
        for column, (value, stderr) in row.figures.items():
            figures |= {column: value, column + STDERR: stderr}
    texts |= {column: f"{size / _MIB:.0f}" for column, size in sizes.items() if size is not None}
    return texts | {column: f"{value:.5g}" for column, value in figures.items() if value is not None}


_Kept = TypeVar("_Kept", "State", SweepRow)

ENDING = ".sweep"
_STATE, ROW = "sweep.json", "row.json"
_PIECE = 1 << 20
_HASHED = 64 << 20
"""Larger files are identified by their size and the time of their last write."""


class State(msgspec.Struct):
    """What the results depend on; a sweep goes on only if it is the same."""

    model: str
    setup: str
    inputs: dict[str, str]
    """The stamp of each input, by what it is for."""
    version: int = 1


class SweepFolder:
    """The folder of the sweep whose results are ``output``."""

    def __init__(self, output: pathlib.Path) -> None:
        self.output = output
        self.path = output.with_name(output.name.removesuffix(".csv") + ENDING)

    def of(self, name: str) -> pathlib.Path:
        """Return the folder of a configuration."""
        plain = re.sub(r"[^\w+-]+", "_", name).strip("_")
        digest = hashlib.sha256(name.encode()).hexdigest()[:4]
        return self.path / f"{plain}-{digest}"

    def state(self) -> State | None:
        """Return what an earlier sweep depended on; None without one. Raises NncfToolsError."""
        return _read(self.path / _STATE, State)

    @property
    def is_foreign(self) -> bool:
        """Whether something else has the name of the folder: not a sweep, and not empty."""
        try:
            is_ours = (self.path / _STATE).exists()
            return not is_ours and not all(path.name.startswith(".") for path in self.path.iterdir())
        except FileNotFoundError:
            return False
        except NotADirectoryError:
            return self.path.exists()

    def locked(self) -> AbstractContextManager[None]:
        """Return what makes the folder and locks it, see ``destination.locked``: one sweep at a time."""
        return destination.locked("--output", self.path, f"another sweep runs in {str(self.path)!r}")

    def check(self) -> None:
        """Make the folder again where it is missing. Raises UsageError for another user's folder in its place."""
        destination.open_folder("--output", self.path).close()

    def begin(self, state: State) -> None:
        """Write what the sweep depends on. Raises OSError."""
        self.check()
        write_file(self.path / _STATE, msgspec.json.format(msgspec.json.encode(state)))

    def rows(self, grid: Sequence[Configuration]) -> dict[str, SweepRow]:
        """Return the rows of a grid that have ended, by name, without those whose settings have changed.

        Raises NncfToolsError for a row that is damaged.
        """
        try:
            rows = [(configuration, _read(self.of(configuration.name) / ROW, SweepRow)) for configuration in grid]
        except NncfToolsError as error:
            raise NncfToolsError(f"{error}; remove that file to run its configuration again") from error
        return {kept.name: row for kept, row in rows if row is not None and row.settings == kept.settings()}

    def keep(self, row: SweepRow) -> None:
        """Write the row of a configuration that ended. Raises OSError."""
        self.check()
        folder = self.of(row.name)
        folder.mkdir(exist_ok=True)
        write_file(folder / ROW, msgspec.json.encode(row))

    def clear(self, name: str) -> pathlib.Path:
        """Make the folder of a configuration, empty, and return it. Raises OSError.

        What a sweep that was killed still writes goes to the old folder.
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
        """Write the results, whole or not at all. Raises OSError."""
        self.check()
        write_file(self.output, table(state.model, state.setup, rows).encode())


def stamp(path: pathlib.Path) -> str:
    """Return a digest that changes when a file or a folder changes. Raises NncfToolsError if it cannot be read."""
    files = files_of(path) if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
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


def files_of(path: pathlib.Path) -> list[pathlib.Path]:
    """Return a file, and of a model in OpenVINO's format (.xml) also its weights."""
    weights = path.with_suffix(".bin")
    return [path, weights] if path.suffix == ".xml" and weights.is_file() else [path]


def differing(before: State, now: State) -> str:
    """Return what differs between two sweeps, in words; empty if the later one may go on with the earlier one."""
    if (before.model, before.setup) != (now.model, now.setup):
        return f"it is of {before.model!r} ({before.setup}), not of {now.model!r} ({now.setup})"
    both = {**before.inputs, **now.inputs}
    names = [name for name in both if before.inputs.get(name) != now.inputs.get(name)]
    return f"it was made with another {' and another '.join(names)}" if names else ""


def _read(file: pathlib.Path, kind: type[_Kept]) -> _Kept | None:
    if not os.path.lexists(file):
        return None
    try:
        return msgspec.json.decode(intake.whole(file, may_wait=False), type=kind)
    except msgspec.MsgspecError as error:
        raise NncfToolsError(f"{file}: cannot be read: {error}") from error


_LAST_WORD = "of the last word of passages: what follows the last blank, after all before it, as in the lambada task"
_RIGHT = "share of right guesses, each token the most probable one,"
_PASSAGES = "of the text: whole sentences, at least 40 words"
DEFINITIONS = {
    INT4: "share of the layers that are compressed to 4 bits, as asked for; embeddings are not among them",
    INT8: "share of these layers that are compressed to 8 bits",
    PLOT_NAME: "name of the configuration in the grid",
    SIZE: "weights on disk (.bin), in GiB",
    "held-out text, word perplexity": "exp(−sum of log-likelihoods ÷ number of words between whitespace), rolling "
    "log-likelihood as in lm-evaluation-harness; windows of at most 2,048 tokens",
    "held-out text, last-word acc": f"{_RIGHT} {_LAST_WORD}; {_PASSAGES}",
    "held-out text, last-word perplexity": f"exp(−mean log-likelihood) {_LAST_WORD}; {_PASSAGES}",
    "passages, last-word acc": f"{_RIGHT} {_LAST_WORD}; one per line",
    "passages, last-word perplexity": f"exp(−mean log-likelihood) {_LAST_WORD}; one passage per line",
    "prompts, similarity": "mean over prompts of 2 × matching tokens ÷ tokens of both, of greedy continuations of 32 "
    "tokens and the baseline's (difflib.SequenceMatcher); 1 is the same text",
    "score": "what the user's function `score` returned",
    COMPRESSION: "time of nncf.compress_weights or nncf.quantize",
    PEAK: "peak RSS of what reads, compresses and saves, children included; the real peak is at least this",
    PEAK_HIGH: "the real peak is at most this",
    PEAK_OWNER: "the operation in which that peak was reached, or the place in the code",
    INFERENCE_PEAK: "peak RSS of the process that evaluates, at least; it reads logits in steps of 128 tokens",
    FIRST_TOKEN: "time to the first new token, median over prompts",
    PER_TOKEN: "time per further token of a greedy continuation of 32 tokens, median over prompts",
    INFERENCE: "time of a call, median over at most 20 items of calibration",
    BITS_PER_WEIGHT: "bits of the file per weight, with scales and zero points",
    BIT_WIDTHS: "share of the weights in matrices by their width",
    FAILED: "why the configuration failed",
}
_TASK = "by lm-evaluation-harness, with its own definition"
ERRORS = (
    f"Columns that end in {STDERR!r} hold standard errors: of means over passages and prompts; of word perplexity from "
    "sums over 64 tokens, taken as independent."
)


def markdown(columns: Iterable[str]) -> str:
    """Return the definitions as a part of a Markdown file."""
    lines = [f"- **{text(column)}**: {text(DEFINITIONS.get(column, _TASK))}" for column in columns]
    return "\n\n## Columns\n\n" + "\n".join([*lines, "", ERRORS]) + "\n"
