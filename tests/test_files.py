from __future__ import annotations

import os
import pathlib

import pytest

from nncftools.files import followed, open_ours, replacing
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
    with replacing(path) as beside:
        beside.write_text("new")

    assert contents(tmp_path) == {"a.txt": "new"}


def test_until_the_end_the_old_file_stays(tmp_path: pathlib.Path) -> None:
    """While the new file is written, the name shows the old one."""
    path = tmp_path / "a.txt"
    path.write_text("old")
    with replacing(path) as beside:
        beside.write_text("new")
        during = path.read_text()

    assert during == "old"


@pytest.mark.parametrize("error", [ValueError, OSError, KeyboardInterrupt])
def test_on_an_error_the_old_file_stays(tmp_path: pathlib.Path, error: type[BaseException]) -> None:
    """Any interruption leaves the old file unchanged and no other file."""
    path = tmp_path / "a.txt"
    path.write_text("old")

    with pytest.raises(error), replacing(path) as beside:  # noqa: PT012 — the error comes from inside
        beside.write_text("half")
        raise error
    assert contents(tmp_path) == {"a.txt": "old"}


def test_the_ending_is_kept(tmp_path: pathlib.Path) -> None:
    """The new file has the ending of the name, from which some writers derive the format."""
    with replacing(tmp_path / "a.svg") as beside:
        suffix, folder = beside.suffix, beside.parent

    assert (suffix, folder) == (".svg", tmp_path)


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


@as_another
def test_links_of_others_are_not_followed(tmp_path: pathlib.Path) -> None:
    """A link of ours is followed; one of another user, who chose where it leads, is refused."""
    (tmp_path / "link").symlink_to("file")
    ours = followed(tmp_path / "link")
    os.chown(tmp_path / "link", OTHER, OTHER, follow_symlinks=False)

    assert (ours, followed(ours)) == (tmp_path / "file", tmp_path / "file")
    with pytest.raises(OSError, match="it is a symbolic link that belongs to another user"):
        followed(tmp_path / "link")
