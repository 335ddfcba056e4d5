"""A function as people read it: its short name, and what it was called with."""

from __future__ import annotations

_OF_A_CLASS = ("from_pretrained", "save_pretrained")
"""Methods that many classes have."""


def short_name(call: str) -> str:
    """Return the part of a function's name that says what it does.

    That is its last part if it has several words (``compress_weights``) or is NNCF's (``quantize``). A method of one
    word needs its class (``AWQ.apply``), any other function its whole name (``torch.onnx.export``).
    """
    *before, last = call.split(".")
    is_method = bool(before) and before[-1][:1].isupper()
    if last in _OF_A_CLASS and is_method:
        return f"{before[-1]}.{last}"
    if "_" in last.strip("_") or before == ["nncf"]:
        return last
    return f"{before[-1]}.{last}" if is_method else call


def signature(name: str, call: str | None, arguments: str | None) -> str:
    """Return the function of an operation with its arguments; empty when it says no more than the operation's name.

    Several functions of one operation are all named.
    """
    if call is None:
        return ""
    calls = call.split(", ")
    if arguments is not None:
        return f"{short_name(call)}({arguments})"
    owner = call.rpartition(".")[0].rpartition(".")[2]
    if len(calls) == 1 and owner[:1].isupper() and _plain(name) in _plain(owner):
        return ""
    return ", ".join(map(short_name, calls))


def _plain(text: str) -> str:
    return "".join(filter(str.isalnum, text)).casefold()
