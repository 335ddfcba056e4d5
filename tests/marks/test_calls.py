from __future__ import annotations

import os
from pathlib import Path

import pytest

from nncftools.marks import autoload, calls
from nncftools.marks.calls import Call


@pytest.mark.parametrize(
    "text, call",
    [
        ("package.module:function=Name", Call("package.module", "function", "Name")),
        ("module:Class.method=My operation", Call("module", "Class.method", "My operation")),
        (" m:f=a = b ", Call("m", "f", "a = b")),
        ("modül:größe=Größe", Call("modül", "größe", "Größe")),
        ("__main__:train=Training", Call("__main__", "train", "Training")),
        ("m:Class.method", Call("m", "Class.method", "Class.method")),
    ],
)
def test_parse(text: str, call: Call) -> None:
    """A text gives module, function or method, and the name of its operations."""
    assert calls.parse([text]) == [call]


@pytest.mark.parametrize(
    "text",
    ["", "module", "module:=Name", ":f=Name", "m:f= ", "m:1=N", "a/b:f=N", "m:f=a\tb"],
)
def test_parse_says_what_was_expected(text: str) -> None:
    """Any other text is refused with an example of a valid one."""
    with pytest.raises(ValueError, match=r"package\.module:function=Name .* expected, found"):
        calls.parse([text])


def test_a_function_alone() -> None:
    """A function without its module is refused; the message says how one of the script is named."""
    with pytest.raises(ValueError, match=r"found 'train'; for the script itself: __main__:train$"):
        calls.parse(["train"])


@pytest.mark.parametrize("before, after", [(None, ""), ("", ""), ("/a:/b", ":/a:/b")])
def test_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, before: str | None, after: str) -> None:
    """The hook's folder precedes the old PYTHONPATH; without calls of the user, their variable is not set."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if before is not None:
        monkeypatch.setenv("PYTHONPATH", before)

    assert calls.environment(tmp_path / "log", []) == {
        "NNCF_TOOLS_MARKS": str(tmp_path / "log"),
        "PYTHONPATH": str(calls.HOOK) + after.replace(":", os.pathsep),
    }


def test_environment_carries_the_users_calls(tmp_path: Path) -> None:
    """A call whose name is one of the kinds gets that kind."""
    carried = calls.environment(tmp_path, [Call("m", "f", "Mine"), Call("a.b", "C.d", "model loading")])

    assert carried[autoload.CALLS] == "m\tf\tMine\t\na.b\tC.d\tmodel loading\tModel Loading"


def test_hook_folder_holds_nothing_else() -> None:
    """With the hook's folder on the path, only sitecustomize can be imported from it."""
    assert {path.name for path in calls.HOOK.iterdir()} - {"__pycache__"} == {"sitecustomize.py"}
