"""What a sweep keeps beside its results: a folder for each configuration, with its row, recordings and logs."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from typing import TYPE_CHECKING, TypeVar

import msgspec

from nncftools import intake
from nncftools.compression.sweep.row import Row, table
from nncftools.errors import NncfToolsError, UsageError
from nncftools.files import another_owner, held, replacing

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator, Mapping, Sequence

    from nncftools.compression.sweep.grid import Configuration

_Kept = TypeVar("_Kept", "State", Row)

ENDING = ".sweep"
_STATE, ROW = "sweep.json", "row.json"
_PIECE = 1 << 20
_HASHED = 64 << 20
"""Larger files are known by their size and the time of their last write."""


class State(msgspec.Struct):
    """What the results depend on; a sweep goes on only with the same."""

    model: str
    setup: str
    inputs: dict[str, str]
    """The stamp of each input, by what it is for."""
    version: int = 1


class Folder:
    """The folder of the sweep whose results are ``output``."""

    def __init__(self, output: pathlib.Path) -> None:
        self.output = output
        self.path = output.with_name(output.name.removesuffix(".csv") + ENDING)

    @property
    def exported(self) -> pathlib.Path:
        """Where the model is exported to, once."""
        return self.path / "model"

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
            return not (self.path / _STATE).exists() and any(
                not one.name.startswith(".") for one in self.path.iterdir()
            )
        except FileNotFoundError:
            return False
        except NotADirectoryError:
            return self.path.exists()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Make the folder, and hold it: one sweep at a time.

        Raises OSError; UsageError while another sweep holds it, and for a folder or a link of another user.
        """
        try:
            self.path.mkdir(parents=True)
        except FileExistsError:
            why = another_owner(self.path.lstat()) or another_owner(self.path.stat())
            if why:
                raise UsageError(f"{str(self.path)!r} {why}; choose another name") from None
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(held(self.path))
            except BlockingIOError as error:
                raise UsageError(f"another sweep runs in {str(self.path)!r}") from error
            yield

    def begin(self, state: State) -> None:
        """Write what the sweep depends on. Raises OSError."""
        self.path.mkdir(parents=True, exist_ok=True)
        _write(self.path / _STATE, msgspec.json.format(msgspec.json.encode(state)))

    def rows(self, grid: Sequence[Configuration]) -> dict[str, Row]:
        """Return what has ended of a grid, by name; not what has other settings now.

        Raises NncfToolsError for a row that is damaged.
        """
        try:
            found = {one.name: _read(self.of(one.name) / ROW, Row) for one in grid}
        except NncfToolsError as error:
            raise NncfToolsError(f"{error}; remove that file, and its configuration runs again") from error
        wanted = {one.name: one.settings() for one in grid}
        return {name: row for name, row in found.items() if row is not None and row.settings == wanted[name]}

    def keep(self, row: Row) -> None:
        """Write the row of a configuration that ended. Raises OSError."""
        folder = self.of(row.name)
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / ROW, msgspec.json.encode(row))

    def clear(self, name: str) -> pathlib.Path:
        """Make the folder of a configuration, empty, and return it. Raises OSError.

        What a sweep that was killed still writes goes to the old folder.
        """
        folder = self.of(name)
        if folder.exists():
            old = folder.with_name(f".{os.urandom(4).hex()}.{folder.name}")
            folder.rename(old)
            shutil.rmtree(old, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def write_table(self, state: State, rows: Sequence[Row]) -> None:
        """Write the results, whole or not at all. Raises OSError."""
        _write(self.output, table(state.model, state.setup, rows).encode())


def stamp(path: pathlib.Path) -> str:
    """Return what changes when a file or a folder changes. Raises NncfToolsError if it cannot be read."""
    files = files_of(path) if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    digest = hashlib.sha256()
    try:
        for file in files:
            found = file.stat()
            digest.update(f"{file.name} {found.st_size}\n".encode())
            if found.st_size > _HASHED:
                digest.update(f"{found.st_mtime_ns}".encode())
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
    """Return what differs between two sweeps, as a text; empty when a sweep can go on."""
    if (before.model, before.setup) != (now.model, now.setup):
        return f"it is of {before.model!r} ({before.setup}), not of {now.model!r} ({now.setup})"
    names = [name for name in {**before.inputs, **now.inputs} if _differs(name, before.inputs, now.inputs)]
    return f"it was made with another {' and another '.join(names)}" if names else ""


def _differs(name: str, before: Mapping[str, str], now: Mapping[str, str]) -> bool:
    return before.get(name) != now.get(name)


def _read(file: pathlib.Path, kind: type[_Kept]) -> _Kept | None:
    if not os.path.lexists(file):
        return None
    try:
        return msgspec.json.decode(intake.whole(file, may_wait=False), type=kind)
    except msgspec.MsgspecError as error:
        raise NncfToolsError(f"{file}: cannot be read: {error}") from error


def _write(file: pathlib.Path, content: bytes) -> None:
    with replacing(file) as beside:
        beside.write_bytes(content)
