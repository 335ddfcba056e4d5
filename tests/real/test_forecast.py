"""A real export, forecast from a few layers and then run whole."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from nncftools.cli.forecast import slices
from nncftools.errors import NncfToolsError
from tests.conftest import Run

pytestmark = pytest.mark.real
CONFIGS = Path(__file__).parent / "configs.py"
REFUSED = {
    "albert": "layers that share the same weights cannot be left out",
    "bart": "it is an encoder and a decoder",
    "gemma3n_text": "belongs to no layer, but its shape depends on the number of layers",
    "t5": "it is an encoder and a decoder",
}
_WRITE = """
import sys, torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
model, out = sys.argv[1:]
size = {"hidden_size": 512, "intermediate_size": 2048, "num_attention_heads": 8}
shape = LlamaConfig.from_pretrained(model, num_hidden_layers=16, **size)
LlamaForCausalLM(shape).save_pretrained(out)
AutoTokenizer.from_pretrained(model).save_pretrained(out)
"""


@pytest.mark.parametrize("more", [[], ["--from-config"]], ids=["weights", "config"])
def test_export(
    nncf_tools: Run, llama: Path, real_environment: dict[str, str], tmp_path: Path, more: list[str]
) -> None:
    """The peak of an export of 16 layers is known from 2, 4 and 6 of them to 5 %, and bytes written to 1 %."""
    subprocess.run(["python", "-c", _WRITE, llama, tmp_path / "model"], env=real_environment, check=True, timeout=300)
    export = ["optimum-cli", "export", "openvino", "--model", "model", "--task", "text-generation", "out"]
    truth = nncf_tools("profile --no-stacks -q -o t.json --", *export, env=real_environment, timeout=300)
    if more:
        (tmp_path / "model/model.safetensors").unlink()
    done = nncf_tools("forecast", *more, "-o", "f", "--", *export, env=real_environment, timeout=600)
    whole = json.loads((tmp_path / "t.json").read_text())
    known = json.loads((tmp_path / "f/forecast.json").read_text())["forecast"]

    assert truth.returncode == 0, truth.stderr
    assert done.returncode == 0, done.stderr
    assert known["peak"]["value"] == pytest.approx(whole["peaks"]["rss"]["low"], rel=0.05)
    assert known["written"]["value"] == pytest.approx(whole["totals"]["write_chars"], rel=0.01)
    assert known["operation"]


def test_configs(real_environment: dict[str, str], tmp_path: Path) -> None:
    """Slices of 40 architectures have just the weights that transformers' classes expect, or are refused truly."""

    def run(task: str, folder: str) -> dict[str, list[str]]:
        words = ["python", str(CONFIGS), task, str(tmp_path / folder)]
        done = subprocess.run(words, env=real_environment, check=True, timeout=300, stdout=subprocess.PIPE)
        found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
        return found

    assert run("write", "models") == {}
    (tmp_path / "slices").mkdir()
    refused = {}
    for folder in sorted((tmp_path / "models").iterdir()):
        try:
            model = slices.read(folder, ["true"])
        except NncfToolsError as error:
            refused[folder.name] = str(error)
            continue
        if counts := model.counts():  # the layers of LFM 2 take turns in no period
            slices.write(model, counts[0], tmp_path / "slices" / folder.name)

    assert refused.keys() == REFUSED.keys()
    assert all(reason in refused[name] for name, reason in REFUSED.items())
    assert len(list((tmp_path / "slices").iterdir())) >= 40
    assert run("check", "slices") == {}
