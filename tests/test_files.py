from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nncftools.files import Folder, open_ours, replacing, write_file
from tests.trust.another_user import OTHER, as_another


def contents(folder: Path) -> dict[str, str]:
    """Return the contents of a folder's files by name."""
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize("before", [{}, {"a.txt": "old"}])
def test_the_file_takes_its_place(tmp_path: Path, before: dict[str, str]) -> None:
    """While the new file is written, the name shows the old one; in the end, there is no other file."""
    for name, content in before.items():
        (tmp_path / name).write_text(content)
    with replacing(tmp_path / "a.txt") as output:
        output.write(b"new")
        output.flush()
        assert [path.read_text() for path in tmp_path.glob("a.txt")] == list(before.values())

    assert contents(tmp_path) == {"a.txt": "new"}


@pytest.mark.parametrize("error", [ValueError, OSError, KeyboardInterrupt])
def test_on_an_error_the_old_file_stays(tmp_path: Path, error: type[BaseException]) -> None:
    """Any interruption leaves the old file unchanged and no other file."""
    path = tmp_path / "a.txt"
    path.write_text("old")

    with pytest.raises(error), replacing(path) as output:  # noqa: PT012 — the error comes from inside
        output.write(b"half")
        raise error
    assert contents(tmp_path) == {"a.txt": "old"}


def test_nobody_leads_the_content_elsewhere(tmp_path: Path) -> None:
    """A link in place of the new file, or another folder in place of its own, changes nothing."""
    folder, precious = tmp_path / "folder", tmp_path / "precious"
    folder.mkdir()
    precious.write_text("mine")
    with replacing(folder / "a.txt") as output:
        (made,) = folder.iterdir()
        made.unlink()
        made.symlink_to(precious)
        folder.rename(tmp_path / "moved")
        folder.mkdir()
        output.write(b"new")

    assert contents(folder) == {}
    assert precious.read_text() == "mine"


@pytest.mark.parametrize("mode", [None, 0o600, 0o444])
def test_permissions(tmp_path: Path, mode: int | None) -> None:
    """A new file is as readable as one written directly; another content changes nothing about who may read."""
    (tmp_path / "plain").touch()
    if mode is not None:
        for name in ("plain", "a.txt"):
            (tmp_path / name).touch()
            (tmp_path / name).chmod(mode)
    write_file(tmp_path / "a.txt", b"new")

    assert (tmp_path / "a.txt").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_without_the_folder_it_fails_at_once(tmp_path: Path) -> None:
    """When the folder is missing, the error comes before anything is written."""
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "missing" / "a.txt"):
        pytest.fail("the block was entered")
    assert contents(tmp_path) == {}


class TestOpenOurs:
    def test_new_and_old(self, tmp_path: Path) -> None:
        """A file is made, or emptied, and what others append meanwhile is not overwritten."""
        path = tmp_path / "log"
        for word in (b"one", b"two"):
            descriptor = open_ours(path)
            os.write(descriptor, word)
            with path.open("ab") as other:
                other.write(b" theirs")
            os.write(descriptor, b" more")
            os.close(descriptor)

            assert path.read_bytes() == word + b" theirs more"

    @pytest.mark.parametrize("is_there", [True, False])
    def test_link(self, tmp_path: Path, is_there: bool) -> None:  # noqa: FBT001 — a case
        """A link is not followed, whether it leads to a file or to none."""
        target = tmp_path / "target"
        if is_there:
            target.write_text("mine")
        (tmp_path / "log").symlink_to(target)

        with pytest.raises(OSError, match="it is a symbolic link"):
            open_ours(tmp_path / "log")
        assert target.exists() == is_there
        assert not is_there or target.read_text() == "mine"

    def test_second_name(self, tmp_path: Path) -> None:
        """The log is a new file: the second name of the earlier one, which may be any file of ours, keeps it."""
        (tmp_path / "target").write_text("mine")
        (tmp_path / "log").hardlink_to(tmp_path / "target")
        os.close(open_ours(tmp_path / "log"))

        assert contents(tmp_path) == {"log": "", "target": "mine"}


@as_another
@pytest.mark.parametrize(
    "owner, group, mode, is_shared",
    [
        (0, 0, 0o755, False),
        (0, 0, 0o1777, False),
        (0, OTHER, 0o2775, False),
        (0, 0, 0o777, True),
        (OTHER, 0, 0o775, False),
        (OTHER, OTHER, 0o755, None),
        (OTHER, OTHER, 0o775, None),
        (OTHER, OTHER, 0o777, None),
        (OTHER, OTHER, 0o1777, None),
    ],
    ids=[
        "ours",
        "sticky",
        "ours for a group",
        "for all",
        "of our group",
        "his",
        "of his group",
        "his for all",
        "his sticky",
    ],
)
@pytest.mark.parametrize("below", ["", "below", "to/link"])
def test_rule(tmp_path: Path, owner: int, group: int, mode: int, is_shared: bool | None, below: str) -> None:  # noqa: FBT001, PLR0913, PLR0917 — a case
    """A folder in which another user could choose where a file goes is refused; None stands for refused."""
    folder = tmp_path / "folder"
    (folder / "below").mkdir(parents=True)
    (tmp_path / "to").mkdir()
    (tmp_path / "to/link").symlink_to("../folder/below")
    os.chown(folder, owner, group)
    folder.chmod(mode)
    path = tmp_path / below if below.startswith("to") else folder / below
    try:
        with Folder(path) as opened:
            found = opened.is_shared
            assert os.path.samestat(opened.descriptor_path.stat(), path.stat())
    except OSError as error:
        assert error.strerror == "the folder 'folder' belongs to another user (nobody)"  # noqa: PT017
        found = None

    assert found is is_shared


class TestFolder:
    """A folder from its check to the last write."""

    def test_made(self, tmp_path: Path) -> None:
        """Missing folders are made on request, also behind our own link."""
        (tmp_path / "link").symlink_to("behind")
        (tmp_path / "behind").mkdir()
        with Folder(tmp_path / "link/a/b", make=True) as folder:
            (folder.descriptor_path / "c.txt").write_text("new")

        assert contents(tmp_path / "behind/a/b") == {"c.txt": "new"}
        with pytest.raises(FileNotFoundError):
            Folder(tmp_path / "missing")

    def test_circle_of_links(self, tmp_path: Path) -> None:
        """A link that leads to itself is refused."""
        (tmp_path / "link").symlink_to("link")

        with pytest.raises(OSError, match="link"):
            Folder(tmp_path / "link")

    @as_another
    def test_link_of_another_user(self, tmp_path: Path) -> None:
        """Another user's link on the way is not followed, although the folder behind it is ours."""
        (tmp_path / "ours").mkdir()
        (tmp_path / "link").symlink_to("ours")
        os.chown(tmp_path / "link", OTHER, OTHER, follow_symlinks=False)

        with pytest.raises(OSError, match="it is a symbolic link that belongs to another user"):
            Folder(tmp_path / "link/below", make=True)
        assert list((tmp_path / "ours").iterdir()) == []

    @pytest.mark.parametrize("is_shared", [False, True])
    @pytest.mark.parametrize("is_made", [False, True])
    def test_another_one_in_its_place(self, tmp_path: Path, is_shared: bool, is_made: bool) -> None:  # noqa: FBT001 — a case
        """Where only we may rename, our command made the folder anew; elsewhere it may be another user's work."""
        (tmp_path / "a").mkdir()
        tmp_path.chmod(0o777 if is_shared else 0o755)
        with Folder(tmp_path / "a") as folder:
            (tmp_path / "a").rename(tmp_path / "moved")
            if is_made:
                (tmp_path / "a").mkdir()
            if is_shared:
                with pytest.raises(OSError, match="a is another folder now"):
                    folder.check()
            else:
                folder.check()
            (folder.descriptor_path / "c.txt").write_text("new")

        assert contents(tmp_path / ("moved" if is_shared else "a")) == {"c.txt": "new"}

    @as_another
    def test_folder_of_another_user_in_its_place(self, tmp_path: Path) -> None:
        """Another user's folder gets nothing."""
        (tmp_path / "a").mkdir()
        with Folder(tmp_path / "a") as folder:
            (tmp_path / "a").rename(tmp_path / "moved")
            (tmp_path / "a").mkdir()
            os.chown(tmp_path / "a", OTHER, OTHER)

            with pytest.raises(OSError, match="the folder 'a' belongs to another user"):
                folder.check()


class TestWhereEveryUserMayRename:
    """In a folder that is open to all, only new names are written."""

    @pytest.fixture(autouse=True)
    def _open(self, tmp_path: Path) -> None:
        (tmp_path / "old").write_text("old")
        tmp_path.chmod(0o777)

    @pytest.mark.parametrize("write", [lambda path: write_file(path, b"new"), open_ours])
    def test_earlier_file(self, tmp_path: Path, write: Callable[[Path], object]) -> None:
        """A file of before stays: it may be another one than the user means."""
        with pytest.raises(OSError, match="the file exists, and every user may replace it"):
            write(tmp_path / "old")
        assert contents(tmp_path) == {"old": "old"}

    def test_own_file(self, tmp_path: Path) -> None:
        """What this process made it may replace: a table grows row by row."""
        for content in (b"1", b"2"):
            write_file(tmp_path / "new", content)

        assert contents(tmp_path) == {"old": "old", "new": "2"}
