from __future__ import annotations

import json
import pathlib

import pytest

from nncftools.cli.sweep.grid import layers_of
from nncftools.errors import NncfToolsError

HUGE = b"\x1b\0\0\0\0\0\0\0" + b'{"a": {"shape": [1e999, 2]}}'


def write_weights(file: pathlib.Path, shapes: dict[str, list[int]]) -> None:
    """Write the header of a file of weights."""
    entries = {name: {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]} for name, shape in shapes.items()}
    header = json.dumps({"__metadata__": {"format": "pt"}, **entries}).encode()
    file.write_bytes(len(header).to_bytes(8, "little") + header)


def test_layers_are_read_from_the_headers_of_weights(tmp_path: pathlib.Path) -> None:
    """Matrices count, embeddings and vectors do not."""
    shapes = {
        "model.embed_tokens.weight": [49152, 100],
        "model.layers.0.mlp.down_proj.weight": [576, 1536],
        "model.layers.0.self_attn.k_proj.weight": [192, 576],
        "model.norm.weight": [576],
    }
    write_weights(tmp_path / "model.safetensors", shapes)
    found = layers_of(tmp_path)

    assert found.inputs == {576, 1536}
    assert found.smallest == 192
    assert (found.indivisible(64), found.indivisible(128)) == (None, 576)


def test_layers_are_read_from_the_configuration_without_weights(tmp_path: pathlib.Path) -> None:
    """A folder that was exported has no file of weights that is known here."""
    (tmp_path / "config.json").write_text('{"hidden_size": 576, "intermediate_size": 1536}')

    assert layers_of(tmp_path) == ({576, 1536}, 576)


@pytest.mark.parametrize("content", [b"", b"\xff" * 100, b"\x02\0\0\0\0\0\0\0[]", HUGE])
def test_damaged_weights_are_refused(tmp_path: pathlib.Path, content: bytes) -> None:
    """The error names the file."""
    (tmp_path / "model.safetensors").write_bytes(content)

    with pytest.raises(NncfToolsError, match=r"model\.safetensors.*is not a file of weights"):
        layers_of(tmp_path)
