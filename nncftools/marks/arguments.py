"""Shows what a marked function was called with, as far as the catalogue says that it matters.

Runs in the marked program: Python 3.8 and later, the standard library only. It runs no code of the program: a value is
shown only if it is a number, a text, a path, an enumeration's member, or a short list of these.
"""

from __future__ import annotations

import os
import sys

from .line import quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

VALUE = "{}"
"""In the catalogue: the value itself; of an enumeration, the member's name."""
MEMBER = "{value}"
"""An enumeration's member by its value."""
FILE = "{file}"
"""The last part of a path."""
UNLESS = "!"
"""Before the name of a flag: it is shown when the argument is False."""
_LONGEST = 400
"""A longer text is not shown: what it means is not in its beginning, and a part of a secret could not be recognised."""
_MOST_ITEMS = 4
_LARGEST = 10**15


class Parameters:
    """The parameters of one function that matter: what to show of them, and which one is the path of what it saves."""

    def __init__(self, function: Callable[..., Any], facts: Mapping[str, Any]) -> None:
        """``facts`` are those of the catalogue."""
        names, defaults = _signature(function)
        self._places = {name: place for place, name in enumerate(facts.get("parameters", names))}
        self._shown: dict[str, str] = facts.get("arguments", {})
        self._saves: str | None = facts.get("saves")
        always: Sequence[str] = facts.get("always", ())
        self._left_out = {
            name: _text(defaults[name], form)
            for name, form in self._shown.items()
            if name in defaults and name not in always
        }
        self._defaults = {name: defaults[name] for name in always if name in defaults}

    def members(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """Return the arguments of a call as a JSON member; empty when there is nothing to show."""
        try:
            texts = [self._one(name, form, args, kwargs) for name, form in self._shown.items()]
            shown = ",".join([quoted(text) for text in texts if text])
        except Exception:
            here = sys.exc_info()[2]
            while here is not None and here.tb_next is not None:
                here = here.tb_next
            if here is not None and here.tb_frame.f_code.co_filename != _text.__code__.co_filename:
                raise  # by the program's signal handler, which may run between these lines
            return ""
        return ',"arguments":[' + shown + "]" if shown else ""

    def _one(self, name: str, form: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        text = _text(self._value(name, args, kwargs), form)
        return "" if text == self._left_out.get(name) else text

    def saved(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
        """Return the absolute path of what a call saves, if it saves to a path."""
        if self._saves is None:
            return None
        path = _path(self._value(self._saves, args, kwargs))
        return os.path.abspath(path) if path else None

    def _value(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if name in kwargs:
            return kwargs[name]
        place = self._places.get(name)
        return args[place] if place is not None and place < len(args) else self._defaults.get(name)


def _signature(function: Any) -> tuple[Sequence[str], Mapping[str, Any]]:
    """Return the names of positional parameters, and defaults by name; both are empty for a compiled function."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = getattr(function, "__code__", None)
    if code is None:
        return (), {}
    names = code.co_varnames[: code.co_argcount]
    last = getattr(function, "__defaults__", None) or ()
    defaults = dict(zip(names[len(names) - len(last) :], last))  # noqa: B905 — strict needs Python 3.10
    defaults.update(getattr(function, "__kwdefaults__", None) or {})
    return names, defaults


def _text(value: Any, form: str) -> str:
    """Return what is shown of a value; empty for nothing."""
    if form.startswith(UNLESS):
        return form[1:] if value is False else ""
    if "{" not in form:
        return "" if value is None or value is False else form
    if FILE in form:
        path = _path(value)
        text = os.path.basename(path.rstrip("/" + os.sep)) if path else ""
        return form.replace(FILE, text) if 0 < len(text) <= _LONGEST else ""
    text = _plain(value, by_value=MEMBER in form)
    return form.replace(MEMBER, text).replace(VALUE, text) if text else ""


def _plain(value: Any, *, by_value: bool = False) -> str:
    """Return a plain value as text; empty for any other."""
    kind = type(value)
    if kind is list or kind is tuple:
        texts = [_plain(one, by_value=by_value) for one in value] if len(value) <= _MOST_ITEMS else []
        return "[" + ", ".join(texts) + "]" if texts and all(texts) else ""
    enumerations = getattr(sys.modules.get("enum"), "Enum", None)
    if enumerations is not None and issubclass(kind, enumerations):
        return _plain(value._value_) if by_value else str.__str__(value._name_ or "")
    if issubclass(kind, str):
        return str.__str__(value) if str.__len__(value) <= _LONGEST else ""
    if kind is bool or (kind is int and abs(value) < _LARGEST):
        return str(value)
    if issubclass(kind, float):
        return float.__format__(value, ".4g")
    path = _path(value)
    return path if path and len(path) <= _LONGEST else ""


def _path(value: Any) -> str | None:
    """Return a path as text; None for anything else, such as an open file."""
    kind = type(value)
    paths = getattr(sys.modules.get("pathlib"), "PurePath", None)
    if paths is not None and issubclass(kind, paths) and kind.__str__ is paths.__str__:
        return str(value)
    if issubclass(kind, str):
        return str.__str__(value)
    return os.fsdecode(value) if kind is bytes else None
