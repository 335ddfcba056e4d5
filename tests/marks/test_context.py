from __future__ import annotations

import contextvars
import importlib.util
import subprocess
import sys

import pytest

from nncftools.marks import context
from nncftools.marks.context import Open


def in_new_context(function: object) -> object:
    """Call a function in a context without operations."""
    assert callable(function)
    return contextvars.Context().run(function)


def test_operations_nest() -> None:
    """The innermost open operation is around what begins; without one it is 0."""

    def nested() -> list[str]:
        """Return what is around, in five places."""
        found = [context.around()]
        outer = Open(3)
        found.append(context.around())
        inner = Open(5)
        found.append(context.around())
        inner.close()
        found.append(context.around())
        outer.close()
        return [*found, context.around()]

    assert in_new_context(nested) == [f',"in":{op}' for op in (0, 3, 5, 3, 0)]


def test_ends_in_any_order() -> None:
    """An operation that ends before one inside of it, or in another context, is around nothing any more."""

    def crossed() -> list[str]:
        """Return what is around after the outer one has ended, and after both have."""
        outer, inner = Open(3), Open(5)
        contextvars.copy_context().run(outer.close)
        found = [context.around()]
        inner.close()
        return [*found, context.around()]

    assert in_new_context(crossed) == [',"in":5', ',"in":0']


def test_chain_of_tasks_does_not_grow() -> None:
    """Tasks that start one another for ever, each inside of the one before, keep no ended operation."""

    def chained() -> int:
        """Return how many operations the last one leads to."""
        before = Open(1)
        for op in range(2, 1000):
            one = contextvars.copy_context().run(Open, op)
            contextvars.copy_context().run(before.close)
            context.swap(one)
            before = one
        count, outer = 0, before.outer
        while outer is not None:
            count, outer = count + 1, outer.outer
        return count

    assert in_new_context(chained) == 1


@pytest.mark.process
def test_forked_child_has_none() -> None:
    """In a forked child, the operations of its parent are not open: the child's are inside of what the parent did."""
    script = (
        "import os; from nncftools.marks import context; context.Open(3); child = os.fork()\n"
        "if child: os.waitpid(child, 0)\n"
        "print(context.around())"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert result.stdout.split() == [',"in":0', ',"in":3']


def test_both_copies_share_their_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy of the hook and that of nncftools know each other's operations, whichever was loaded first."""
    spec = importlib.util.spec_from_file_location("_nncf_tools_marks.context", context.__file__)
    assert spec is not None
    assert spec.loader is not None
    copy = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, copy)
    spec.loader.exec_module(copy)

    assert copy.variable is context.variable
    assert copy.Open is not Open
