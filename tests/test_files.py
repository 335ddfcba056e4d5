from __future__ import annotations

import os
import pathlib

import pytest

from nncftools.files import Way, followed, open_ours, replacing
from tests.trust.another_user import OTHER, as_another


def contents(folder: pathlib.Path) -> dict[str, str]:
    """Return the contents of a folder's files by name."""
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize("before", [None, "old"])
def test_the_file_takes_its_place(tmp_path: pathlib.Path, before: str | None) -> None:
    """In the end, the content is under the name, and there is no other file."""
    path = tmp_path / "a.txt"
    if before is not None:
        path.write_text(before)
    with replacing(path) as output:
        output.write(b"new")

    assert contents(tmp_path) == {"a.txt": "new"}


def test_until_the_end_the_old_file_stays(tmp_path: pathlib.Path) -> None:
    """While the new file is written, the name shows the old one."""
    path = tmp_path / "a.txt"
    path.write_text("old")
    with replacing(path) as output:
        output.write(b"new")
        output.flush()
        during = path.read_text()

    assert during == "old"


@pytest.mark.parametrize("error", [ValueError, OSError, KeyboardInterrupt])
def test_on_an_error_the_old_file_stays(tmp_path: pathlib.Path, error: type[BaseException]) -> None:
    """Any interruption leaves the old file unchanged and no other file."""
    path = tmp_path / "a.txt"
    path.write_text("old")

    with pytest.raises(error), replacing(path) as output:  # noqa: PT012 — the error comes from inside
        output.write(b"half")
        raise error
    assert contents(tmp_path) == {"a.txt": "old"}


def test_nobody_leads_the_content_elsewhere(tmp_path: pathlib.Path) -> None:
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


def test_the_new_file_is_empty_at_first(tmp_path: pathlib.Path) -> None:
    """Writing nothing makes an empty file."""
    with replacing(tmp_path / "a.txt"):
        pass

    assert contents(tmp_path) == {"a.txt": ""}


def test_the_file_has_the_usual_permissions(tmp_path: pathlib.Path) -> None:
    """The file is as readable as one written directly."""
    (tmp_path / "plain").write_text("")
    with replacing(tmp_path / "a.txt"):
        pass

    assert (tmp_path / "a.txt").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_without_the_folder_it_fails_at_once(tmp_path: pathlib.Path) -> None:
    """When the folder is missing, the error comes before anything is written."""
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "missing" / "a.txt"):
        pytest.fail("the block was entered")
    assert contents(tmp_path) == {}


class TestOpenOurs:
    def test_new_and_old(self, tmp_path: pathlib.Path) -> None:
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
    def test_link(self, tmp_path: pathlib.Path, is_there: bool) -> None:  # noqa: FBT001 — a case
        """A link is not followed, whether it leads to a file or to none."""
        target = tmp_path / "target"
        if is_there:
            target.write_text("mine")
        (tmp_path / "log").symlink_to(target)

        with pytest.raises(OSError, match="it is a symbolic link"):
            open_ours(tmp_path / "log")
        assert target.exists() == is_there
        assert not is_there or target.read_text() == "mine"

    def test_second_name(self, tmp_path: pathlib.Path) -> None:
        """A file with a second name is left as it is: it may be any file of ours."""
        (tmp_path / "target").write_text("mine")
        (tmp_path / "log").hardlink_to(tmp_path / "target")

        with pytest.raises(OSError, match="it has a second name"):
            open_ours(tmp_path / "log")
        assert contents(tmp_path) == {"log": "mine", "target": "mine"}


class TestWay:
    """What leads to a file, from its check to its write."""

    def test_nothing_changed(self, tmp_path: pathlib.Path) -> None:
        """What is missing is made, and what is written arrives."""
        way = Way(tmp_path / "a/b")
        way.make()
        with way.reached() as folder:
            (folder / "c.txt").write_text("new")

        assert contents(tmp_path / "a/b") == {"c.txt": "new"}

    def test_another_folder(self, tmp_path: pathlib.Path) -> None:
        """A folder of ours that has taken the place of the one that was checked gets nothing."""
        (tmp_path / "a").mkdir()
        (tmp_path / "precious").mkdir()
        way = Way(tmp_path / "a", must_stay=True)
        (tmp_path / "a").rename(tmp_path / "moved")
        (tmp_path / "precious").rename(tmp_path / "a")

        with pytest.raises(OSError, match=r"a is another folder now$"), way.reached():
            pytest.fail("the block was entered")

    def test_made_again(self, tmp_path: pathlib.Path) -> None:
        """A folder of ours that a command made anew counts as the same, unless a command cannot have made it."""
        (tmp_path / "a").mkdir()
        way = Way(tmp_path / "a")
        (tmp_path / "a").rename(tmp_path / "moved")
        (tmp_path / "a").mkdir()
        with way.reached() as folder:
            (folder / "c.txt").write_text("new")

        assert contents(tmp_path / "a") == {"c.txt": "new"}

    def test_made_by_another_process_of_ours(self, tmp_path: pathlib.Path) -> None:
        """A folder that was missing at the check may be there at the write."""
        way = Way(tmp_path / "a", must_stay=True)
        (tmp_path / "a").mkdir()

        way.make()

    @pytest.mark.parametrize("folder", ["a", "a/b"])
    def test_link(self, tmp_path: pathlib.Path, folder: str) -> None:
        """A link that has taken the place of a folder is not followed, and no folder is made behind it."""
        (tmp_path / "a").mkdir()
        (tmp_path / "precious").mkdir()
        way = Way(tmp_path / folder)
        (tmp_path / "a").rename(tmp_path / "moved")
        (tmp_path / "a").symlink_to("precious")

        with pytest.raises(OSError, match=r"a is another folder now$"):
            way.make()
        assert list((tmp_path / "precious").iterdir()) == []

    @as_another
    @pytest.mark.parametrize("folder", ["a", "a/b"])
    def test_folder_of_another_user(self, tmp_path: pathlib.Path, folder: str) -> None:
        """In a folder that another user put in the place of ours, nothing is made."""
        (tmp_path / "a").mkdir()
        way = Way(tmp_path / folder)
        (tmp_path / "a").rename(tmp_path / "moved")
        (tmp_path / "a").mkdir()
        os.chown(tmp_path / "a", OTHER, OTHER)

        with pytest.raises(OSError, match="a is another folder now, which belongs to another user"):
            way.make()
        assert list((tmp_path / "a").iterdir()) == []

    @as_another
    def test_shared_folder(self, tmp_path: pathlib.Path) -> None:
        """A folder of another user is as good as any, if it was the one that was checked."""
        os.chown(tmp_path, OTHER, OTHER)

        Way(tmp_path).check()

    def test_meanwhile(self, tmp_path: pathlib.Path) -> None:
        """What is written goes to the folder that was checked; it is an error when the path leads elsewhere then."""
        (tmp_path / "a").mkdir()
        way = Way(tmp_path / "a", must_stay=True)

        with pytest.raises(OSError, match="a is another folder now"), way.reached() as folder:  # noqa: PT012
            (tmp_path / "a").rename(tmp_path / "moved")
            (tmp_path / "a").mkdir()
            (folder / "c.txt").write_text("new")
        assert contents(tmp_path / "moved") == {"c.txt": "new"}
        assert contents(tmp_path / "a") == {}


@as_another
def test_links_of_others_are_not_followed(tmp_path: pathlib.Path) -> None:
    """A link of ours is followed; one of another user, who chose where it leads, is refused."""
    (tmp_path / "link").symlink_to("file")
    ours = followed(tmp_path / "link")
    os.chown(tmp_path / "link", OTHER, OTHER, follow_symlinks=False)

    assert (ours, followed(ours)) == (tmp_path / "file", tmp_path / "file")
    with pytest.raises(OSError, match="it is a symbolic link that belongs to another user"):
        followed(tmp_path / "link")
