from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from nncftools.marks import autoload, calls
from nncftools.session.nesting import KINDS

FACTS = {"kind", "name", "call", "step", "logged", "leaf", "arguments", "always", "saves", "parameters"}
FOLDER = pathlib.Path(autoload.__file__).parent / "catalogue"
STAND_IN = pathlib.Path(__file__).parent / "stand_in"


def entries() -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Yield file, module, function and facts of all entries."""
    for file in sorted(set(autoload.LIBRARIES.values())):
        for module, functions in autoload.catalogued(file).items():
            for function, facts in functions.items():
                yield file, module, function, facts


def test_every_file_is_registered() -> None:
    """Each file of the folder belongs to a library, and each library has a file."""
    assert {path.stem for path in FOLDER.glob("*.json")} == set(autoload.LIBRARIES.values())


def test_entries_are_whole() -> None:
    """Every entry has a valid kind or a name, and known facts, under the root package that lists its file."""
    for file, module, function, facts in entries():
        place = f"{module}:{function}"
        arguments = {*facts.get("arguments", {})}
        assert facts["kind"] in KINDS if "kind" in facts else facts["name"] not in KINDS, place
        assert set(facts) <= FACTS - ({"name"} if "kind" in facts else set()), place
        assert {*facts.get("always", ()), *filter(None, [facts.get("saves")])} <= arguments, place
        assert arguments <= set(facts.get("parameters", arguments)), place
        assert autoload.LIBRARIES[module.partition(".")[0]] == file, place
        assert all(part.isidentifier() for part in [*module.split("."), *function.split(".")]), place
        assert not facts.get("step") or facts.get("kind") == "Training" or facts["name"] == "Inference", place


def test_names_are_unambiguous() -> None:
    """No function is listed twice, and no two are shown under one name."""
    shown = [facts.get("call") or f"{module.partition('.')[0]}.{name}" for _, module, name, facts in entries()]
    files = {(file, module) for file, module, _, _ in entries()}

    assert sorted(shown) == sorted(set(shown))
    assert len(files) == len({module for _, module in files})


def test_versions_of_nncf() -> None:
    """The table of versions names catalogued functions only, and the version that the catalogue is for lacks none."""
    lacking = json.loads((pathlib.Path(__file__).parent / "nncf_versions.json").read_text())
    known = {f"{module}:{function}" for _, module, function, _ in entries()}

    assert {name for names in lacking.values() for name in names} <= known
    assert lacking["3.4.0"] == []


@pytest.mark.process
def test_qefficient_is_marked(tmp_path: pathlib.Path) -> None:
    """Loading, export, compilation and generation of QEfficient are marked; a stand-in has its modules and names."""
    log = tmp_path / "marks.jsonl"
    log.touch()
    program = """
from QEfficient import QEFFAutoModelForCausalLM
model = QEFFAutoModelForCausalLM.from_pretrained("gpt2")
assert model.compile() == "gpt2.qpc" and model.generate(["a"]) == ["A"]
"""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(STAND_IN))
        environment = {**os.environ, **calls.environment(log, [])}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    lines = [json.loads(line) for line in log.read_bytes().splitlines()]

    assert [(line["name"], line["call"]) for line in lines if line.get("event") == "begin"] == [
        ("Model Loading", "QEfficient.QEFFAutoModelForCausalLM.from_pretrained"),
        ("Model Loading", "QEfficient.QEFFTransformersBase.from_pretrained"),
        ("Export", "QEfficient.QEFFBaseModel.export"),
        ("Compilation", "QEfficient.QEFFBaseModel.compile"),
        ("Generation", "QEfficient.QEFFAutoModelForCausalLM.generate"),
    ]
