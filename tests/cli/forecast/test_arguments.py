from __future__ import annotations

from pathlib import Path

import pytest

from nncftools.cli.forecast import arguments
from nncftools.errors import UsageError

EXPORT = ["optimum-cli", "export", "openvino"]


@pytest.fixture
def model(tmp_path: Path) -> str:
    """Return a folder with a config."""
    folder = tmp_path / "my model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return str(folder)


def replaced(words: list[str], model: str | None = None, *, writes: bool = True) -> list[str]:
    """Return a command with its model and output replaced."""
    command = arguments.find(words, model, writes=writes)
    return command.with_slice(Path("SLICE"), Path("SCRATCH"))


class TestFind:
    @pytest.mark.parametrize("option", [["--weight-format", "int4"], ["--sym"], ["--ratio=0.8"], []])
    @pytest.mark.parametrize("is_first", [True, False])
    def test_optimum(self, model: str, option: list[str], is_first: bool) -> None:  # noqa: FBT001
        """The output of optimum-cli is the one word that belongs to no option, wherever it is."""
        words = ["OUT", *option] if is_first else [*option, "OUT"]

        expected = ["SCRATCH" if word == "OUT" else word for word in words]
        assert replaced([*EXPORT, "--model", model, *words]) == [*EXPORT, "--model", "SLICE", *expected]

    def test_value_of_an_option(self, model: str) -> None:
        """A model that an option has after an equals sign is replaced there."""
        assert replaced([*EXPORT, f"--model={model}", "OUT"]) == [*EXPORT, "--model=SLICE", "SCRATCH"]

    @pytest.mark.parametrize(
        "words", [["OUT", "MORE"], ["OUT", "--task"], ["OUT", "--quantization-statistics-path", "F"], []]
    )
    def test_no_certain_output(self, model: str, words: list[str]) -> None:
        """Two words, none, or a second file that is written: nothing is guessed."""
        with pytest.raises(UsageError, match=r"not known where 'optimum-cli' writes; .* output by \{output\}"):
            arguments.find([*EXPORT, "--model", model, *words], None, writes=True)

    def test_unknown_command(self, model: str) -> None:
        """Of a command that is not in the catalogue, the output must be marked, or there must be none."""
        with pytest.raises(UsageError, match=r"give --no-output if it writes nothing"):
            arguments.find(["python", "run.py", model, "OUT"], None, writes=True)
        assert replaced(["run", model, "--to={output}/x"]) == ["run", "SLICE", "--to=SCRATCH/x"]
        assert replaced(["run", model], writes=False) == ["run", "SLICE"]

    def test_contradiction(self, model: str) -> None:
        """A command with a marked output writes something."""
        with pytest.raises(UsageError, match=r"option --no-output: the command has \{output\}"):
            arguments.find(["run", model, "{output}"], None, writes=False)

    def test_qefficient(self, model: str) -> None:
        """QEfficient writes to the folder that a variable names, by the name of the model."""
        words = ["python", "-m", "QEfficient.cloud.export", "--model-name", model]

        assert replaced(words) == ["env", "QEFF_HOME=SCRATCH", *words[:-1], "SLICE"]

    def test_models(self, model: str, tmp_path: Path) -> None:
        """With two models, --model says which one is meant; an output that holds an earlier export is none."""
        other = tmp_path / "other"
        other.mkdir()
        (other / "config.json").touch()
        words = ["run", model, str(other), "{output}"]

        with pytest.raises(UsageError, match="name it with --model ARG"):
            arguments.find(words, None, writes=True)
        assert replaced(words, str(other)) == ["run", model, "SLICE", "SCRATCH"]
        assert replaced([*EXPORT, "--model", model, str(other)]) == [*EXPORT, "--model", "SLICE", "SCRATCH"]

    @pytest.mark.parametrize(
        "model, message",
        [
            (None, "no argument is a folder with config.json"),
            ("org/name", "is not a folder with config.json"),
            ("else", "no argument of the command is 'else'"),
        ],
    )
    def test_no_model(self, model: str | None, message: str) -> None:
        """A name of a hub is no folder."""
        with pytest.raises(UsageError, match=message):
            arguments.find([*EXPORT, "--model", "org/name", "OUT"], model, writes=True)


class TestBySize:
    @pytest.mark.parametrize(
        "parameters, words, added",
        [
            (2_000_000_000, [], ["--weight-format", "int8"]),
            (2_000_000_000, ["--weight-format", "fp16"], []),
            (900_000_000, [], []),
        ],
    )
    def test_int8(self, model: str, parameters: int, words: list[str], added: list[str]) -> None:
        """What optimum does above 1 B parameters is done with slices, too, and said."""
        command = arguments.find([*EXPORT, "--model", model, *words, "OUT"], None, writes=True)
        changed, notes = arguments.by_size(command, parameters, 4 * parameters)

        assert list(changed.added) == added
        assert bool(notes) == bool(added)

    def test_onnx(self, model: str) -> None:
        """ONNX above 2 GB is written in another way: that is said."""
        command = arguments.find(["optimum-cli", "export", "onnx", "--model", model, "OUT"], None, writes=True)

        assert "2 GB" in arguments.by_size(command, 10**9, 3 << 30)[1][0]
        assert not arguments.by_size(command, 10**8, 1 << 30)[1]
