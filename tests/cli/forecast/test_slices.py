from __future__ import annotations

import contextlib
import json
import shutil
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from nncftools.cli.forecast import slices
from nncftools.errors import NncfToolsError, SessionFileError
from tests.cli.forecast import models


def tensors_of(file: Path) -> dict[str, tuple[list[int], float]]:
    """Return shape and value of the tensors of a file."""
    data = file.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    head = json.loads(data[8 : 8 + length])
    head.pop("__metadata__")
    found = {}
    for name, one in head.items():
        values = set(struct.iter_unpack("<f", data[8 + length :][slice(*one["data_offsets"])]))
        ((value,),) = values
        found[name] = (one["shape"], value)
    return found


@pytest.mark.parametrize("shards", [1, 3])
def test_real_weights(tmp_path: Path, shards: int) -> None:
    """A slice has the real weights of the first layers, from one file or several."""
    folder = models.write(tmp_path / "model", 6, shards=shards, layer_types=["a", "b"] * 3)
    slices.write(slices.read(folder, ["true"]), 4, tmp_path / "slice")
    found = tensors_of(tmp_path / "slice/model.safetensors")
    names = [f"model.layers.{number}.{name}" for number in range(4) for name in ("attn.q", "mlp.w")]
    config = json.loads((tmp_path / "slice/config.json").read_text())

    assert set(found) == {"model.embed_tokens.weight", *names}
    assert shards > 1 or found["model.layers.3.mlp.w"] == ([8, 8], 8.0)
    assert (config["num_hidden_layers"], config["layer_types"]) == (4, ["a", "b"] * 2)


def test_only_needed_files_are_copied(tmp_path: Path) -> None:
    """A slice has the files of tokenizers, templates, other configs and code; no data, documents or folders."""
    folder = models.write(tmp_path / "model", 4)
    needed = ["tokenizer.model", "merges.txt", "generation_config.json", "chat_template.jinja", "mine.py"]
    others = ["source.txt.gz", "data.parquet", "README.md", "weights.bin", "pytorch_model.bin.index.json", "core"]
    for name in [*needed, *others]:
        (folder / name).touch()
    (folder / "folder.json").mkdir()
    slices.write(slices.read(folder, ["true"]), 2, tmp_path / "slice")

    assert {path.name for path in (tmp_path / "slice").iterdir()} == {
        *needed,
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    }


@pytest.mark.parametrize("spaces", [0, 8, 24])
def test_alignment(tmp_path: Path, spaces: int) -> None:
    """The weights of a slice are aligned as in the model's file, whatever the length of the headers."""
    folder = models.write(tmp_path / "model", 4)
    file = folder / "model.safetensors"
    content = file.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    file.write_bytes(struct.pack("<Q", length + spaces) + b" " * spaces + content[8:])
    slices.write(slices.read(folder, ["true"]), 2, tmp_path / "slice")
    begins = [next(iter(slices.read(path, ["true"]).tensors.values())).begin for path in (folder, tmp_path / "slice")]

    assert begins[0] % 64 == begins[1] % 64


def test_files_beside_weights_count(tmp_path: Path) -> None:
    """What is copied beside the weights counts as disk, a sparse file with its whole size."""
    folder = models.write(tmp_path / "model", 4)
    before = slices.read(folder, ["true"]).disk_size(2)
    with (folder / "vocab.json").open("wb") as file:
        file.truncate(20 << 30)

    assert slices.read(folder, ["true"]).disk_size(2) == before + (20 << 30)


@pytest.mark.parametrize(
    "made, counts",
    [
        ({}, list(range(1, 12))),
        ({"experts_every": 2}, [2, 4, 6, 8, 10]),
        ({"layer_types": ["s", "s", "f"] * 4, "moe_layers": list(range(12))}, [3, 6, 9]),
        ({"layer_types": ["dense", "dense", *(["experts"] * 10)]}, list(range(3, 12))),
        ({"sliding_window_pattern": 4}, [4, 8]),
        ({"model_type": "gemma2"}, [2, 4, 6, 8, 10]),
        ({"use_sliding_window": True, "max_window_layers": 3}, list(range(4, 12))),
        ({"eos_token_id": list(range(12)), "max_window_layers": 3}, list(range(1, 12))),
    ],
)
def test_turns(tmp_path: Path, made: dict[str, Any], counts: list[int]) -> None:
    """Slices keep the layers at the beginning that differ, and whole periods of those that take turns."""
    model = slices.read(models.write(tmp_path / "model", 12, **made), ["true"])

    assert model.counts() == counts


@pytest.mark.parametrize(
    "config, keys",
    [
        ({"n_layers": 6, "out_features": ["stage6"]}, ["n_layers"]),  # MPT, DistilBERT
        ({"num_blocks": 6, "num_hidden_layers": 6}, ["num_hidden_layers", "num_blocks"]),  # xLSTM
        ({"encoder_layers": 2, "decoder_layers": 6}, ["decoder_layers"]),  # the decoder of Blenderbot
        ({"num_layers": 2, "num_hidden_layers": 6}, ["num_hidden_layers"]),
        ({"layers_block_type": ["mamba", "attention"] * 3}, []),  # Nemotron-H
        ({"hybrid_override_pattern": "M-*" * 2, "num_hidden_layers": 6}, ["num_hidden_layers"]),
        ({"attention_types": [[["global", "local"], 3]], "num_layers": 6}, ["num_layers"]),
    ],
)
def test_names_of_the_number(tmp_path: Path, config: dict[str, Any], keys: list[str]) -> None:
    """The number of layers has several names, and all that counts by layers is cut with it."""
    model = slices.read(models.write(tmp_path / "model", 6, **{"num_hidden_layers": None, **config}), ["true"])
    least = model.counts()[0]
    cut = model.config_of(least)
    by_layer = {
        "layers_block_type": ["mamba", "attention"][:least],
        "hybrid_override_pattern": "M-*"[:least],
        "attention_types": [[["global", "local"], 1]],
    }

    assert (model.layers, list(model.keys)) == (6, keys)
    assert cut == cut | dict.fromkeys(keys, least)
    assert "out_features" not in cut
    assert all(cut[key] == value for key, value in by_layer.items() if key in config)


@pytest.mark.process
def test_transformers_is_asked(tmp_path: Path) -> None:
    """The transformers of the command's Python names the number of layers, and the weights of a slice."""
    folder = models.write(tmp_path / "model", 6, num_hidden_layers=None, length=6)
    python = tmp_path / "python3"
    python.write_text("""#!/bin/sh
        [ "$3" = look ] || exec echo '["length"]'
        grep -q '"length":1' "$4/config.json" && cat "${0%python3}answer"
    """)
    python.chmod(0o755)
    assert slices.read(folder, [str(python)]).keys == ["length"]

    (tmp_path / "answer").write_text('{"tensors": [["model.layers.5.mlp.w", "", [8, 8], 256]], "layer_types": null}')
    with pytest.raises(NncfToolsError, match=r"transformers expects the weight 'model.layers.5.mlp.w' in every slice"):
        slices.read(folder, [str(python)])


@pytest.mark.parametrize("config, has_note", [({"num_nextn_predict_layers": 1}, False), ({}, True)])
def test_prediction_layers(tmp_path: Path, config: dict[str, Any], has_note: bool) -> None:  # noqa: FBT001
    """Layers that predict further tokens follow the layers of each slice, also where the config does not name them."""
    model = slices.read(models.write(tmp_path / "model", 6, extra=1, **config), ["true"])
    slices.write(model, 2, tmp_path / "slice")
    found = tensors_of(tmp_path / "slice/model.safetensors")

    assert (model.layers, bool(model.notes)) == (6, has_note)
    assert {slices.layer_of(name) for name in found} == {-1, 0, 1, 2}
    assert found["model.layers.2.attn.q"] == ([8, 8], 13.0)  # the weights of layer 6


REFUSED = [
    ({"tensors": {"encoder.albert_layer_groups.0.albert_layers.0.w": (8, 8)}, "layers": 0}, "share the same weights"),
    (
        {"tensors": {"model.embed_tokens_per_layer.weight": (16, 48)}},
        "belongs to no layer, but its shape depends on the number of layers",
    ),
    ({"tensors": {"encoder.mid_position_embeddings": (5, 8)}}, "its shape depends on the number of layers"),  # YOLOS
    ({"tensors": {"transformer.attentions.1.w": (8, 8)}, "layers": 0}, "names of its weights do not show the layers"),
    ({"tensors": {"model.vision.encoder.layers.0.w": (8, 8)}}, "several stacks of layers"),
    ({"vision_config": {}}, r"several models \(vision_config\)"),
    ({"is_encoder_decoder": True}, "it is an encoder and a decoder"),
    ({"num_hidden_layers": 9}, "says 9 layers, but the weights have only 6"),
    ({"num_hidden_layers": "many"}, "does not say how many layers"),
]


@pytest.mark.parametrize("made, message", REFUSED)
def test_refused_with_the_reason(tmp_path: Path, made: dict[str, Any], message: str) -> None:
    """A model that cannot be sliced, or whose config lies, is refused before the first run, with the reason."""
    models.write(tmp_path / "model", made.pop("layers", 6), **{"num_hidden_layers": 6, **made})

    with pytest.raises(NncfToolsError, match=message):
        slices.read(tmp_path / "model", ["true"])


def test_layer_names() -> None:
    """Llama, GPT-2, and BERT name their layers differently; experts inside are no layers."""
    names = ["layers.7.w", "transformer.h.7.w", "h.7.w", "encoder.layer.7.w", "model.layers.7.mlp.experts.9.w", "norm"]

    assert [slices.layer_of(name) for name in names] == [7, 7, 7, 7, 7, -1]


def test_without_weights(tmp_path: Path) -> None:
    """A folder without weights is refused with what helps."""
    folder = models.write(tmp_path / "model", 4)
    (folder / "model.safetensors").unlink()

    with pytest.raises(NncfToolsError, match=r"no weights in safetensors .* --from-config makes random weights"):
        slices.read(folder, ["true"])


def test_cut_short(tmp_path: Path) -> None:
    """Weights whose download was not finished are refused."""
    folder = models.write(tmp_path / "model", 4)
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])

    with pytest.raises(SessionFileError, match="is not within the file, which was cut short"):
        slices.read(folder, ["true"])


@pytest.mark.parametrize("shape", [(10**18,) * 30, (1,) * 100, (-1, 8)])
def test_shapes_that_cannot_be(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """A tensor with more numbers than bits, without end, or below zero is refused in one line."""
    models.write(tmp_path / "model")
    path = tmp_path / "model/model.safetensors"
    (length,) = struct.unpack("<Q", path.read_bytes()[:8])
    head = path.read_bytes()[8 : 8 + length].replace(b"[16, 8]", json.dumps(shape).encode())
    path.write_bytes(struct.pack("<Q", len(head)) + head + path.read_bytes()[8 + length :])

    with pytest.raises(SessionFileError, match="weights in safetensors expected"):
        slices.read(tmp_path / "model", ["true"])


def test_files_outside(tmp_path: Path) -> None:
    """An index cannot make us read files of other folders."""
    folder = models.write(tmp_path / "model", 4, shards=2)
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../../secret"}}')

    with pytest.raises(NncfToolsError, match="names files outside of the folder"):
        slices.read(folder, ["true"])


@pytest.mark.parametrize(
    "name, first_line, python",
    [
        ("tool", f"#!{sys.executable} -u", sys.executable),
        ("python_job.py", "#!/usr/bin/env python3", shutil.which("python3")),
        ("python-export.sh", "#!/bin/sh", None),
    ],
)
def test_find_python(tmp_path: Path, name: str, first_line: str, python: str | None) -> None:
    """The Python of a script is in its first line; of another program it is unknown, whatever its name begins with."""
    (tmp_path / name).write_text(f"{first_line}\n")
    (tmp_path / name).chmod(0o755)
    found = None
    with contextlib.suppress(NncfToolsError):
        found = slices.find_python({}, [str(tmp_path / name)])

    assert found == python
