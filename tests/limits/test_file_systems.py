from __future__ import annotations

import os
import pathlib
import tempfile

import pytest

from nncftools.limits.needs import file_systems, rooms


@pytest.fixture
def devices(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Return devices by folder below ``tmp_path``, which is the working folder: add to it to mount one there."""
    mounted: dict[str, int] = {}
    real = pathlib.Path.stat

    class Facts:
        def __init__(self, of: os.stat_result, device: int) -> None:
            self.st_dev, self.st_mode = device, of.st_mode

    def stat(path: pathlib.Path, **options: bool) -> Facts:
        inside = [device for folder, device in mounted.items() if path.is_relative_to(tmp_path / folder)]
        return Facts(real(path, **options), inside[-1] if inside else 1)

    for folder in ("work", "tmp", "out", "data", "more"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(pathlib.Path, "stat", stat)
    return mounted


def found(tmp_path: pathlib.Path, *words: str) -> list[tuple[str, str]]:
    """Return roles and folders for a command, whose recording is in ``out``."""
    return [
        (role, str(pathlib.Path(folder).relative_to(tmp_path)))
        for role, folder in file_systems(["work", *words], tmp_path / "out")
    ]


def test_one_file_system(tmp_path: pathlib.Path, devices: dict[str, int]) -> None:
    """A file system counts once, in the first role that it has."""
    assert devices == {}
    assert found(tmp_path, f"{tmp_path}/data/model") == [("cwd", "work")]


def test_several(tmp_path: pathlib.Path, devices: dict[str, int]) -> None:
    """Each file system has the role of who writes to it."""
    devices.update({"tmp": 2, "out": 3, "data": 4})

    assert found(tmp_path, f"{tmp_path}/data") == [
        ("cwd", "work"),
        ("TMPDIR", "tmp"),
        ("output", "out"),
        ("argument", "data"),
    ]


def test_several_arguments(tmp_path: pathlib.Path, devices: dict[str, int]) -> None:
    """File systems of further arguments are numbered."""
    devices.update({"data": 4, "more": 5})

    assert found(tmp_path, f"{tmp_path}/data/a", f"--output={tmp_path}/more/b")[1:] == [
        ("argument", "data"),
        ("argument-2", "more"),
    ]


@pytest.mark.parametrize("word", ["data", "--flag", "--size=3", "", "https://host/data", "/" + "x" * 5000, "a/\0b"])
def test_words_that_are_no_paths(tmp_path: pathlib.Path, devices: dict[str, int], word: str) -> None:
    """Other words, and what cannot be a path, name no file system."""
    devices["data"] = 4

    assert found(tmp_path, word) == [("cwd", "work")]


@pytest.mark.parametrize("word", ["head -c 9 /dev/zero > {}/new", "of={}", "-o{}/x", "a={}:b"])
def test_path_inside_of_a_word(tmp_path: pathlib.Path, devices: dict[str, int], word: str) -> None:
    """A line for a shell, and an option with its value, have paths inside."""
    devices.update({"data": 4})

    assert found(tmp_path, word.format(tmp_path / "data")) == [("cwd", "work"), ("argument", "data")]


def test_relative_path(tmp_path: pathlib.Path, devices: dict[str, int]) -> None:
    """A path that does not exist yet stands for the nearest folder above it."""
    devices["work/models"] = 4
    (tmp_path / "work/models").mkdir()

    assert found(tmp_path, "./models/new/int4") == [("cwd", "work"), ("argument", "work/models")]


class TestRooms:
    def free(self, monkeypatch: pytest.MonkeyPatch, blocks: int = 5) -> None:
        """Make each file system have that many blocks of 100 bytes free."""
        real = os.statvfs("/")
        free = os.statvfs_result([real.f_bsize, 100, 10, blocks + 2, blocks, *list(real)[5:]])
        monkeypatch.setattr(os, "statvfs", lambda _: free)

    def test_role_that_is_here(
        self, tmp_path: pathlib.Path, devices: dict[str, int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What was used of a file system is needed of the one with this role; ordinary users can write what is free."""
        devices["tmp"] = 2
        self.free(monkeypatch)

        assert rooms({"cwd": 300, "TMPDIR": 700}, ["work"], tmp_path / "out") == [
            (str(tmp_path / "work"), 300, 500),
            (str(tmp_path / "tmp"), 700, 500),
        ]

    def test_roles_that_share_one(
        self, tmp_path: pathlib.Path, devices: dict[str, int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Roles that had file systems of their own need the sum of a shared one."""
        devices["data"] = 4
        self.free(monkeypatch)
        used = {"cwd": 300, "TMPDIR": 700, "output": 10, "argument": 1, "argument-2": 2000}

        assert rooms(used, ["work", f"{tmp_path}/data"], tmp_path / "out") == [
            (str(tmp_path / "work"), 3010, 500),
            (str(tmp_path / "data"), 1, 500),
        ]

    def test_unknown(self, tmp_path: pathlib.Path, devices: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
        """A file system that does not answer is left out."""
        assert devices == {}

        def fails(_: object) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(os, "statvfs", fails)

        assert rooms({"cwd": 300}, ["work"], tmp_path / "out") == []
