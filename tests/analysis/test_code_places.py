from __future__ import annotations

import pytest

from nncftools.analysis.code_places import brief_label, package_of, reported_frames
from nncftools.session.model import Frame
from tests.made_up_stacks import SITE, frame

LONG = f"{SITE}transformers/models/llama/modeling_llama.py"


@pytest.mark.parametrize(
    "file, expected",
    [
        (f"{SITE}torch/jit/_trace.py", "torch"),
        (f"{SITE}six.py", "six"),
        ("/usr/lib/python3/dist-packages/yaml/nodes.py", "yaml"),
        ("/usr/lib/python3.11/json/decoder.py", "python"),
        ("<frozen runpy>", "python"),
        ("/home/me/export.py", ""),
    ],
)
def test_package(file: str, expected: str) -> None:
    """A file belongs to a package, to the standard library, or to the program."""
    assert package_of(file) == expected


@pytest.mark.parametrize(
    "of, expected",
    [
        (Frame("f", LONG, 7), "transformers/…/modeling_llama.py:7 f"),
        (Frame("f", f"{SITE}torch/jit/_trace.py", 7), "torch/jit/_trace.py:7 f"),
        (Frame("outer.<locals>.f", "/home/me/work/a.py", 7), "work/a.py:7 outer.f"),
        (Frame("f", "/home/me/work/a.py", 0), "work/a.py f"),
        (Frame("<module>", f"{SITE}torch/nn/__init__.py", 7), "import torch.nn"),
        (Frame("<module>", "/home/me/work/a.py", 7), "work/a.py:7"),
    ],
)
def test_brief_label(of: Frame, expected: str) -> None:
    """A label has a short path, the line and the function; the code of a module is its import."""
    assert brief_label(of) == expected


def test_label_after_another_frame() -> None:
    """A file is not repeated, except after an import, which does not name it."""
    assert brief_label(Frame("g", LONG, 8), Frame("f", LONG, 7)) == ":8 g"
    assert brief_label(Frame("g", LONG, 8), Frame("<module>", LONG, 7)) == "transformers/…/modeling_llama.py:8 g"


@pytest.mark.parametrize(
    "place, expected",
    [
        ("<frozen importlib._bootstrap>:1 _find_and_load", True),
        ("/usr/lib/python3.11/importlib/__init__.py:1 import_module", True),
        ("torch/nn/modules/module.py:1 Module._call_impl", True),
        ("torch/nn/modules/module.py:1 Module.to", False),
        ("own/module.py:1 _call_impl", False),
        ("transformers/modeling_layers.py:1 GradientCheckpointingLayer.__call__", True),
        ("transformers/utils/generic.py:1 can_return_tuple.<locals>.wrapper", True),
        ("torch/_tensor.py:1 wrapped", True),
        ("torch/nn/modules/activation.py:1 inner", False),
        ("/home/me/work/cache.py:1 cached.<locals>.wrapper", False),
        ("/usr/lib/python3.11/curses/__init__.py:1 wrapper", False),
    ],
)
def test_machinery(place: str, expected: bool) -> None:  # noqa: FBT001 — a parameter of a test
    """The import system, PyTorch's calls and the decorators of libraries say nothing about the program."""
    assert reported_frames([frame("a.py:1 main"), frame(place), frame("a.py:2 work")])[1:-1] == (
        [] if expected else [(1, frame(place))]
    )


def test_innermost_wrapper() -> None:
    """A function of this name that calls nothing takes memory itself."""
    stack = [frame("a.py:1 main"), frame("torch/_tensor.py:1 wrapped"), frame("torch/_tensor.py:2 wrapped")]

    assert reported_frames(stack) == [(0, stack[0]), (2, stack[2])]
