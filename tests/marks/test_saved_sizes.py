from __future__ import annotations

import pathlib

import pytest

from nncftools.marks.collecting import size_of, take_sizes
from nncftools.session.model import Mark


@pytest.mark.parametrize(
    ("saved", "expected"), [("m.xml", 107), ("n.xml", 3), ("m.onnx", 55), ("other.bin", 9), ("folder", 12)]
)
def test_weights_beside_a_model_count(tmp_path: pathlib.Path, saved: str, expected: int) -> None:
    """A model's file counts with the weights beside it, a folder with all that is in it."""
    sizes = {"m.xml": 7, "m.bin": 100, "n.xml": 3, "m.onnx": 5, "m.onnx_data": 50, "other.bin": 9}
    for name, size in {**sizes, "folder/a": 5, "folder/inner/b": 7}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * size)

    assert size_of(tmp_path / saved) == expected


def test_what_is_gone_is_unknown(tmp_path: pathlib.Path) -> None:
    """A file that was removed has no size; marks that saved nothing have none either."""
    marks = [
        Mark(name="a", start_s=0, saved=str(tmp_path / "gone")),
        Mark(name="b", start_s=0),
        Mark(name="c", start_s=0),
    ]
    (tmp_path / "there").write_bytes(b"12345")
    marks[2].saved = str(tmp_path / "there")
    take_sizes(marks)

    assert [mark.saved_size for mark in marks] == [None, None, 5]
