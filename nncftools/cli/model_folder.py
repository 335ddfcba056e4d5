"""The folder of a model of Hugging Face: its config, and the headers of its weights. Nothing else is loaded."""

from __future__ import annotations

import contextlib
import math
import pathlib
import struct
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec

from nncftools import intake
from nncftools.errors import SessionFileError
from nncftools.units import printable

CONFIG = "config.json"
LARGEST_HEADER = 128 << 20
_LARGEST_CONFIG = 4 << 20


class Tensor(NamedTuple):
    """A tensor of a file of weights."""

    kind: str
    shape: Sequence[int]
    begin: int
    """Where its bytes are in the file."""
    end: int
    file: pathlib.Path

    @property
    def size(self) -> int:
        """Return how many bytes it has."""
        return self.end - self.begin


class Entry(msgspec.Struct):
    """A tensor in the header of a file."""

    dtype: str
    shape: Annotated[list[Annotated[int, msgspec.Meta(ge=0)]], msgspec.Meta(max_length=32)]
    data_offsets: tuple[int, int]


def config_of(folder: pathlib.Path) -> dict[str, Any]:
    """Return the config of a model. Raises SessionFileError."""
    file = folder / CONFIG
    with naming(file, "the config of a model"):
        return msgspec.json.decode(intake.whole(file, most=_LARGEST_CONFIG, may_wait=False), type=dict[str, Any])


@contextlib.contextmanager
def naming(file: pathlib.Path, expected: str = "weights in safetensors") -> Iterator[None]:
    """Raise SessionFileError, which names the file and what was expected, where it cannot be decoded."""
    try:
        yield
    except (msgspec.MsgspecError, ValueError, RecursionError, struct.error) as error:
        raise SessionFileError(f"{file}: {expected} expected: {error}") from error


def tensors_of(path: pathlib.Path) -> dict[str, Tensor]:
    """Return the tensors of a file by its header: 8 bytes of its length, then JSON (safetensors' README, Format).

    Raises SessionFileError.
    """
    tensors = {}
    with naming(path), intake.open_file(path, may_wait=False) as file:
        (length,) = struct.unpack("<Q", file.read(8))
        size = intake.size_of(file) or 0
        if length > min(size, LARGEST_HEADER):
            raise ValueError(f"its header has {length:,} bytes, the file {size:,}")
        head = msgspec.json.decode(file.read(length), type=dict[str, msgspec.Raw])
        head.pop("__metadata__", None)
        for name, raw in head.items():
            entry = msgspec.json.decode(raw, type=Entry)
            begin, end = (8 + length + offset for offset in entry.data_offsets)
            if not 8 + length <= begin <= begin + math.prod(entry.shape) // 8 <= end <= size:
                raise ValueError(f"the tensor {printable(name)!r} is not within the file, which was cut short")
            tensors[name] = Tensor(entry.dtype, entry.shape, begin, end, path)
    return tensors
