from __future__ import annotations

import enum
import functools
import json
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from nncftools.marks.call_log import Parameters


class Mode(enum.Enum):
    INT4_SYM = "int4_sym"


class TextMode(str, enum.Enum):
    MIXED = "mixed"


class Hostile:
    """A value that may not be touched."""

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401 — any attribute
        raise AssertionError(name)

    __repr__ = __str__ = __bool__ = __len__ = __eq__ = __hash__ = __fspath__ = None  # type: ignore[assignment]


def compress(model: object, mode: object = None, *, ratio: object = 1.0, awq: bool = False, out: object = None) -> None:
    """Stand for a function of a library."""


def shown(form: str, value: object) -> str:
    """Return what is shown of one argument; empty for nothing."""
    members = Parameters(compress, {"arguments": {"mode": form}}).members((0, value), {})
    return "".join(json.loads(f"{{{members[1:]}}}")["arguments"]) if members else ""


def members(arguments: dict[str, str], *args: object, always: tuple[str, ...] = (), **kwargs: object) -> list[str]:
    """Return what is shown of a call of ``compress``."""
    text = Parameters(compress, {"arguments": arguments, "always": always}).members(args, kwargs)
    found: list[str] = json.loads(f"{{{text[1:]}}}").get("arguments", [])
    return found


@pytest.mark.parametrize(
    "form, value, expected",
    [
        ("{}", Mode.INT4_SYM, "INT4_SYM"),
        ("{}", TextMode.MIXED, "MIXED"),
        ("{value}", TextMode.MIXED, "mixed"),
        ("g{}", 64, "g64"),
        ("ratio {}", 0.8, "ratio 0.8"),
        ("{}", 0.123456789, "0.1235"),
        ("{}", "CPU", "CPU"),
        ("{}", True, "True"),
        ("{}", ["CPU", "GPU"], "[CPU, GPU]"),
        ("{file}", "/tmp/out/q.xml", "q.xml"),
        ("{file}", Path("out/model"), "model"),
        ("{file}", "out/model/", "model"),
        ("{file}", b"/tmp/q.xml", "q.xml"),
        ("to {file}", "q.onnx", "to q.onnx"),
        ("awq", True, "awq"),
        ("dataset", object(), "dataset"),
        ("!slow", False, "slow"),
        ("{}", None, ""),
        ("{}", object(), ""),
        ("{}", list(range(5)), ""),
        ("{}", {"a": 1}, ""),
        ("{}", "x" * 401, ""),
        ("{}", 10**400, ""),
        ("{file}", object(), ""),
        ("{file}", "", ""),
        ("awq", False, ""),
        ("awq", None, ""),
        ("!slow", True, ""),
    ],
)
def test_value(form: str, value: object, expected: str) -> None:
    """Numbers, texts, paths, members of enumerations and short lists are shown as the catalogue says, others not."""
    assert shown(form, value) == expected


def test_no_code_of_the_program_runs() -> None:
    """An object is not asked what it is, how it reads or whether it is true; any object sets a flag."""
    for form in ("{}", "{value}", "{file}", "!flag"):
        assert shown(form, Hostile()) == ""
    assert shown("{}", [Hostile()]) == ""
    assert shown("dataset", Hostile()) == "dataset"


def test_defaults_are_left_out() -> None:
    """An argument that is the default is left out, given or not, unless the catalogue wants it always."""
    assert members({"ratio": "ratio {}"}, 0, ratio=1.0) == []
    assert members({"ratio": "ratio {}"}, 0) == []
    assert members({"ratio": "ratio {}"}, 0, always=("ratio",)) == ["ratio 1"]


def test_wrapped_function() -> None:
    """The parameters are those of the function that a decorator wraps."""

    @functools.wraps(compress)
    def outer(*args: Any, **kwargs: Any) -> None:  # noqa: ANN401 — any
        compress(*args, **kwargs)

    assert Parameters(outer, {"arguments": {"mode": "{}"}}).members((0, "a"), {}) == ',"arguments":["a"]'


def test_compiled_function() -> None:
    """A compiled function does not tell its parameters: the catalogue does."""
    facts = {"arguments": {"output": "{file}"}, "saves": "output", "parameters": ("model", "output")}
    parameters = Parameters(len, facts)

    assert parameters.members((0, "a/q.xml"), {}) == ',"arguments":["q.xml"]'
    assert parameters.saved((0, "/a/q.xml"), {}) == "/a/q.xml"


@pytest.mark.parametrize("value, expected", [("/a/b.xml", "/a/b.xml"), (None, None), (object(), None), ("", None)])
def test_saved(value: object, expected: str | None) -> None:
    """The path of what is saved is absolute; an open file has none."""
    parameters = Parameters(compress, {"saves": "out"})

    assert parameters.saved((0,), {"out": value}) == expected


def test_exceptions_of_the_program_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that a signal handler of the program raises meanwhile is not swallowed; one of our own is."""
    parameters = Parameters(compress, {"arguments": {"mode": "{}"}})
    monkeypatch.setattr(parameters, "_value", mock.Mock(side_effect=TimeoutError("the program's")))
    with pytest.raises(TimeoutError, match="the program's"):
        parameters.members((0,), {})
    monkeypatch.undo()
    monkeypatch.setattr(parameters, "_shown", None)
    assert parameters.members((0,), {}) == ""
