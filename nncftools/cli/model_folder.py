"""Read the folder of a Hugging Face model: only the config, and the headers of the files of weights."""

from __future__ import annotations

import contextlib
import math
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from nncftools import intake
from nncftools.errors import SessionFileError
from nncftools.units import printable

CONFIG = "config.json"
LARGEST_HEADER = 128 << 20
_LARGEST_CONFIG = 4 << 20


class Tensor(NamedTuple):
    """A tensor in a file of weights."""

    kind: str
    shape: Sequence[int]
    begin: int
    """Offset of the tensor's first byte in the file."""
    end: int
    file: Path

    @property
    def size(self) -> int:
        """Number of bytes of the tensor in the file."""
        return self.end - self.begin


_Dimension = Annotated[int, msgspec.Meta(ge=0)]


class Entry(msgspec.Struct):
    """The entry of a tensor in the header of a file."""

    dtype: str
    shape: Annotated[list[_Dimension], msgspec.Meta(max_length=32)]
    data_offsets: tuple[int, int]


def read_config(folder: Path) -> dict[str, Any]:
    """Return the config of a model. Raises SessionFileError."""
    file = folder / CONFIG
    with naming_file(file, "the config of a model"):
        content = intake.read_file(file, most=_LARGEST_CONFIG, may_wait=False)
        return msgspec.json.decode(content, type=dict[str, Any])


@contextlib.contextmanager
def naming_file(file: Path, expected: str = "weights in safetensors") -> Iterator[None]:
    """Raise SessionFileError if the file cannot be decoded; the message names the file and the expected content."""
    try:
        yield
    except (msgspec.MsgspecError, ValueError, RecursionError, struct.error) as error:
        raise SessionFileError(f"{file}: {expected} expected: {error}") from error


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors in the header of a file in the format safetensors. Raises SessionFileError.

    The file begins with 8 bytes for the header's length; then comes the header in JSON (safetensors' README, Format).
    """
    tensors = {}
    with naming_file(path), intake.open_file(path, may_wait=False) as file:
        (length,) = struct.unpack("<Q", file.read(8))
        size = intake.size_of(file) or 0
        if length > min(size, LARGEST_HEADER):
            raise ValueError(f"its header has {length:,} bytes, the file {size:,}")
        content = file.read(length)
        header = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
        header.pop("__metadata__", None)
        start = 8 + length
        for name, raw in header.items():
            entry = msgspec.json.decode(raw, type=Entry)
            begin, end = (start + offset for offset in entry.data_offsets)
            least = math.prod(entry.shape) // 8
            if not start <= begin <= begin + least <= end <= size:
                raise ValueError(f"the tensor {printable(name)!r} is not within the file, which was cut short")
            tensors[name] = Tensor(entry.dtype, entry.shape, begin, end=end, file=path)
    return tensors
