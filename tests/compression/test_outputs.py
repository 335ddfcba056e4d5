from __future__ import annotations

import pathlib

import pytest

import nncftools.compression
from nncftools.compression import visualize
from nncftools.compression.outputs import Request, make
from nncftools.errors import NncfToolsError
from tests.compression.made_up import MADE_UP, changed, four, written


def names(folder: pathlib.Path) -> list[str]:
    """Return the names of a folder's files."""
    return sorted(path.name for path in folder.iterdir())


class TestVisualize:
    def test_writes_table_and_picture(self, tmp_path: pathlib.Path) -> None:
        """The function writes a table and a picture named like the input, and creates the folder."""
        files = visualize(str(MADE_UP), tmp_path / "new" / "out")

        assert [path.name for path in files] == ["made_up_compression.md", "made_up_compression.png"]
        assert names(tmp_path / "new" / "out") == ["made_up_compression.md", "made_up_compression.png"]
        assert files[1].read_bytes().startswith(b"\x89PNG")

    def test_beside_the_input(self, tmp_path: pathlib.Path) -> None:
        """Without a folder, the files go next to the input and replace existing ones."""
        path = written(tmp_path / "a.csv", four())
        (tmp_path / "a.md").write_text("old")
        visualize(path)

        assert names(tmp_path) == ["a.csv", "a.md", "a.png"]
        assert (tmp_path / "a.md").read_text().startswith("| mode")

    def test_writes_nothing_for_bad_input(self, tmp_path: pathlib.Path) -> None:
        """Bad input leaves no file and no folder."""
        path = written(tmp_path / "a.csv", changed(four(), 3, "%int8", "100"))
        with pytest.raises(NncfToolsError):
            visualize(path, tmp_path / "out")

        assert names(tmp_path) == ["a.csv"]

    def test_unknown_name(self) -> None:
        """The package has no other public names."""
        with pytest.raises(AttributeError, match="no attribute 'nothing'"):
            _ = nncftools.compression.nothing


class TestMake:
    def test_never_replaces_an_input(self, tmp_path: pathlib.Path) -> None:
        """An input with the name of an output is kept."""
        path = written(tmp_path / "a.md", four())
        before = path.read_bytes()
        with pytest.raises(NncfToolsError, match="it is the input"):
            make(Request([path]))

        assert path.read_bytes() == before

    def test_all_or_nothing(self, tmp_path: pathlib.Path) -> None:
        """When one file cannot be written, none is."""
        path = written(tmp_path / "a.csv", four())
        (tmp_path / "a.png").mkdir()
        with pytest.raises(NncfToolsError, match=r"a\.png': it is not a file"):
            make(Request([path]))

        assert names(tmp_path) == ["a.csv", "a.png"]

    def test_folder_that_is_a_file(self, tmp_path: pathlib.Path) -> None:
        """A folder that cannot be created is named."""
        path = written(tmp_path / "a.csv", four())
        with pytest.raises(NncfToolsError, match=r"cannot make the folder .*a\.csv"):
            make(Request([path], path))

    def test_follows_links(self, tmp_path: pathlib.Path) -> None:
        """An output that is a link stays a link; its target is replaced."""
        path = written(tmp_path / "a.csv", four())
        (tmp_path / "elsewhere.md").write_text("old")
        (tmp_path / "a.md").symlink_to("elsewhere.md")
        make(Request([path]))

        assert (tmp_path / "a.md").is_symlink()
        assert (tmp_path / "elsewhere.md").read_text().startswith("| mode")

    def test_several_inputs(self, tmp_path: pathlib.Path) -> None:
        """Several inputs give one table and one picture, named after all of them."""
        path = written(tmp_path / "a.csv", four())
        make(Request([path, MADE_UP], formats=("svg",)))

        assert names(tmp_path) == ["a+made_up_compression.md", "a+made_up_compression.svg", "a.csv"]

    def test_notes(self, tmp_path: pathlib.Path) -> None:
        """Omissions are reported in notes."""
        path = written(tmp_path / "a.csv", four()[:2])
        notes = make(Request([path], lenient=True)).notes

        assert notes == ["Made-up-7b: no row with int4, gptq; left out of table and picture"]
