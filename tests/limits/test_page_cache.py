from __future__ import annotations

import os
import pathlib
import sys

import pytest

from nncftools.cli.fit import groups
from tests.made_up import MIB

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the page cache of Linux")


def test_cached(tmp_path: pathlib.Path) -> None:
    """What has just been written is cached to the last byte."""
    file = tmp_path / "model.bin"
    file.write_bytes(b"x" * (MIB + 10))
    descriptor = os.open(file, os.O_RDWR)

    assert groups.cached(descriptor) == MIB + 10
    os.close(descriptor)


def test_dropped(tmp_path: pathlib.Path) -> None:
    """Dropping a file says what is left, which is all of it in a file system of memory alone, else nothing."""
    file = tmp_path / "model.bin"
    file.write_bytes(b"x" * MIB)

    assert groups.drop([str(file)]) in {0, MIB}


@pytest.mark.parametrize(
    ("name", "told"), [(b"\xff.bin", r"\xff.bin"), (b"two\nlines", r"two\012lines"), (rb"C:\xff", r"C:\xff")]
)
def test_name_as_in_sessions(tmp_path: pathlib.Path, name: bytes, told: str) -> None:
    """A file whose name is no UTF-8, or has a line break, is found by what sessions call it."""
    file = os.fsencode(tmp_path) + b"/" + name
    try:
        pathlib.Path(os.fsdecode(file)).write_bytes(b"x" * MIB)
    except OSError:
        pytest.skip("the file system takes no such name")

    assert groups._name(f"{tmp_path}/{told}") == file


@pytest.mark.parametrize("name", ["missing", "", "folder", "empty", "a\0b"])
def test_no_such_file(tmp_path: pathlib.Path, name: str) -> None:
    """What cannot be dropped, because it is gone or no file with content, is passed over."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()

    assert groups.drop([f"{tmp_path}/{name}"]) == 0
