from __future__ import annotations

import pathlib

import pytest

import nncftools.compression
from nncftools.compression import visualize
from nncftools.compression.outputs import Request, make
from nncftools.compression.picture import draw
from nncftools.errors import NncfToolsError
from tests.compression.made_up import MADE_UP, changed, four, row, without_int8, written


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

    def test_empty_folder(self, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """An empty folder means next to the input, not the working directory."""
        (tmp_path / "here").mkdir()
        monkeypatch.chdir(tmp_path / "here")
        visualize(input_file=str(written(tmp_path / "a.csv", four())), output_dir="")

        assert names(tmp_path) == ["a.csv", "a.md", "a.png", "here"]
        assert names(tmp_path / "here") == []

    def test_notes_are_warnings(self, tmp_path: pathlib.Path) -> None:
        """A note is a warning at the line of the call; with lenient, a missing mode is no note."""
        path = written(tmp_path / "a.csv", without_int8())
        with pytest.warns(UserWarning, match="^Made-up-7b: no row with int8; the others are compared$") as caught:
            visualize(path)

        assert caught[0].filename == __file__
        assert visualize(path, lenient=True) == [tmp_path / "a.md", tmp_path / "a.png"]

    def test_errors_are_builtin(self, tmp_path: pathlib.Path) -> None:
        """Every error is a RuntimeError; without the input, it is a FileNotFoundError too."""
        bad = written(tmp_path / "a.csv", four()[1:])
        good = written(tmp_path / "b.csv", four())
        huge = written(tmp_path / "c.csv", changed(four(), 2, "model size, Gb", "1e300"))
        (tmp_path / "d.csv").write_bytes(b"\x00")
        wrong = [(bad, ""), (huge, ""), (tmp_path / "d.csv", ""), (tmp_path, ""), (good, good), (tmp_path / "none", "")]
        errors = []
        for source, folder in wrong:
            with pytest.raises(RuntimeError) as caught:
                visualize(source, folder)
            errors.append(caught.value)

        assert [isinstance(error, NncfToolsError) for error in errors] == [True] * 6
        assert [isinstance(error, FileNotFoundError) for error in errors] == [False] * 5 + [True]

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

    def test_missing_modes(self, tmp_path: pathlib.Path) -> None:
        """Missing modes are a note, unless lenient."""
        path = written(tmp_path / "a.csv", four()[:2])

        assert make(Request([path])).notes == ["Made-up-7b: no row with int4, gptq; the others are compared"]
        assert make(Request([path], lenient=True)).notes == []

    def test_two_baselines(self, tmp_path: pathlib.Path) -> None:
        """Further baselines are a note, also when lenient; they are in the table, and not in the picture."""
        path = written(tmp_path / "a.csv", [*four(), row("fp32", **{"lambada-openai, acc": 0.4})])
        outcome = make(Request([path], lenient=True))

        assert outcome.notes == ["Made-up-7b: rows 2, 6 are all fp32; row 2 is the baseline"]
        assert [line.split("|")[5].strip() for line in (tmp_path / "a.md").read_text().splitlines()[2:]] == [
            *(["0.0%"] * 4),
            "5.0%",
        ]
        assert len(draw(outcome.comparisons).points) == 3
