from __future__ import annotations

from pathlib import Path

import pytest

from nncftools.cli.sweep import grid
from nncftools.cli.sweep.grid import Layers, read_layers
from nncftools.errors import NncfToolsError
from tests.cli.forecast import models
from tests.made_up import rows

SMOLLM2 = Layers(frozenset({576, 1536}), 192)
UNKNOWN = Layers(frozenset(), None)


def written(folder: Path, text: str) -> str:
    """Write a grid and return its path."""
    path = folder / "grid.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_quick_grid_is_the_four_usual_ones() -> None:
    """The default has the baseline, int8, int4 data-free and int4 with scale estimation."""
    found, notes = grid.weight_grid("quick", SMOLLM2)

    assert [one.title for one in found] == [
        *("fp32", "int8 asymmetric", "int4 symmetric", "int4 symmetric + scale estimation"),
    ]
    assert [one.needs_data for one in found] == [False, False, False, True]
    assert notes == []


def test_full_grid_leaves_out_ranks_that_the_layers_do_not_have() -> None:
    """Rank 256 is more than the smallest layer of SmolLM2 has; a note says so."""
    found, notes = grid.weight_grid("full", SMOLLM2)

    assert [one.rank for one in found if one.rank] == [8, 128]
    assert {0.4, 0.6, 0.8} == {one.ratio for one in found if one.ratio is not None}
    assert any(one.gptq for one in found)
    assert notes == ["lora 256 is left out: rank 256 is larger than the smallest layer (192)"]


@pytest.mark.parametrize("inputs, size", [({576, 1536}, 64), ({128, 256}, 128), ({48}, 16), ({50}, -1), (set(), 128)])
def test_group_size_is_the_largest_usual_one_that_divides_the_layers(inputs: set[int], size: int) -> None:
    """128 comes first; where no size divides the layers, each channel is a group."""
    found, _ = grid.weight_grid("quick", Layers(frozenset(inputs), None))

    assert [one.group_size for one in found] == [None, None, size, size]


@pytest.mark.parametrize(
    "mode, shares", [("nf4", (1, 0)), ("mxfp4", (1, 0)), ("fp8_e4m3", (0, 1)), ("int2_sym", (0, 0))]
)
def test_shares_of_other_modes(mode: str, shares: tuple[float, float]) -> None:
    """All kinds of 4 bits count as 4 bits, and of 8 bits as 8."""
    assert grid.Weights("a", mode).shares == shares


def test_file_gets_a_baseline(tmp_path: Path) -> None:
    """A grid without a baseline gets one, because the others are compared with it."""
    path = written(tmp_path, '[[configuration]]\nname = "nf4"\nmode = "nf4"\n')
    found, _ = grid.weight_grid(path, UNKNOWN)

    assert [one.name for one in found] == ["fp32", "nf4"]


WRONG = """
 | no configuration
nothing = 1 | unknown field `nothing`
configuration = 1 | Expected `array`, got `int`
not toml | grid.toml
[[configuration]]; name = 'a' | missing required field `mode`
[[configuration]]; name = ''; mode = 'nf4' | a name of 1 to 60 characters expected
[[configuration]]; name = 'fp32'; mode = 'nf4' | 'fp32' is the name of the baseline
{a} 'int5' | found 'int5'
{a} 'nf4'; rank = 1 | unknown field `rank`
{a} 'nf4'; {a} 'nf4' | two configurations are named 'a'
{a} 'int4_sym'; ratio = 80 | Expected `float` <= 1.0 - at `$.ratio`
{a} 'int4_sym'; group_size = 128 | group size 128 does not divide layers
{a} 'int4_sym'; lora_rank = 256 | rank 256 is larger than the smallest
{a} 'int8_sym'; awq = true | awq cannot be used with int8_sym
{a} 'nf4'; gptq = true; lora_rank = 8 | gptq and lora_rank cannot be combined
{a} 'nf4'; lora_rank = 0 | Expected `int` >= 1 - at `$.lora_rank`
{a} 'nf4'; subset_size = -1 | Expected `int` >= 1 - at `$.subset_size`
{a} 'nf4'; group_size = 0 | group_size of at least 1, or -1 (per channel)
""".replace("{a}", "[[configuration]]; name = 'a'; mode =")


@pytest.mark.parametrize("text, expected", rows(WRONG))
def test_wrong_grid_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    """The error names the file, the configuration and what was expected, before anything runs."""
    with pytest.raises(NncfToolsError) as error:
        grid.weight_grid(written(tmp_path, text.replace("; ", "\n")), SMOLLM2)

    assert expected in str(error.value)
    assert "grid.toml" in str(error.value)


def test_chosen_keeps_the_baseline() -> None:
    """A chosen configuration comes with the baseline; an unknown name is refused with those that there are."""
    found, _ = grid.weight_grid("quick", UNKNOWN)

    assert [one.name for one in grid.choose(found, ["int4"])] == ["fp32", "int4"]
    with pytest.raises(NncfToolsError, match="no configuration 'nf4' in the grid, only fp32, int8"):
        grid.choose(found, ["nf4"])


HUGE = b"\x1b\0\0\0\0\0\0\0" + b'{"a": {"shape": [1e999, 2]}}'


def test_layers_are_read_from_the_headers_of_weights(tmp_path: Path) -> None:
    """Matrices count, embeddings and vectors do not."""
    shapes = {
        "model.embed_tokens.weight": [490, 100],
        "model.layers.0.mlp.down_proj.weight": [576, 1536],
        "model.layers.0.self_attn.k_proj.weight": [192, 576],
        "model.norm.weight": [576],
    }
    models.write_weights(tmp_path / "model.safetensors", shapes)
    found = read_layers(tmp_path)

    assert found.inputs == {576, 1536}
    assert found.smallest == 192
    assert (found.indivisible(64), found.indivisible(128)) == (None, 576)


def test_layers_are_read_from_the_configuration_without_weights(tmp_path: Path) -> None:
    """A folder that was exported has no file of weights that is known here."""
    (tmp_path / "config.json").write_text('{"hidden_size": 576, "intermediate_size": 1536}')

    assert read_layers(tmp_path) == ({576, 1536}, 576)


@pytest.mark.parametrize("content", [b"", b"\xff" * 100, b"\x02\0\0\0\0\0\0\0[]", HUGE])
def test_damaged_weights_are_refused(tmp_path: Path, content: bytes) -> None:
    """The error names the file."""
    (tmp_path / "model.safetensors").write_bytes(content)

    with pytest.raises(NncfToolsError, match=r"model\.safetensors: weights in safetensors expected"):
        read_layers(tmp_path)
