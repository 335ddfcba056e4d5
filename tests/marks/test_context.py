"""Wrappers behave as the functions: the hook's tests try them with every Python, through the hook."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import inspect
import subprocess
import sys
import types
import weakref
from collections.abc import AsyncGenerator, Generator
from typing import Any

import pytest

from nncftools.marks import operations as context
from nncftools.marks.operations import Open


def in_new_context(function: object) -> object:
    """Call a function in a context without operations."""
    assert callable(function)
    return contextvars.Context().run(function)


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
        "import os; from nncftools.marks import operations as context; context.Open(3); child = os.fork()\n"
        "if child: os.waitpid(child, 0)\n"
        "print(context.around())"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert result.stdout.split() == [',"in":0', ',"in":3']


Log = list[str]


class Begun(context.Open):
    """An operation that notes its begin and its end."""

    def __init__(self, log: Log) -> None:
        super().__init__(1)
        self.log = log
        log.append("begin")

    def end(self, error: BaseException | None) -> None:
        """Note what ended it."""
        self.close()
        self.log.append("end" if error is None else type(error).__name__)


def marked(function: Any, log: Log) -> Any:  # noqa: ANN401 — any function
    """Return a function whose operations are noted."""
    return context.marked(function, lambda *_: Begun(log))


class Big:
    """What a program sends, yields or gives."""


def echo(first: object) -> Generator[object, object, str]:
    """Yield what is sent, and the names of errors that are thrown."""
    got = yield first
    del first
    while got != "stop":
        try:
            got = yield got
        except KeyError as error:
            got = yield f"caught {error}"
    return "stopped"


def test_generator_is_marked_from_its_first_step_to_its_end() -> None:
    """It begins with its first step, passes on what is sent and thrown, and ends with what it returns."""
    log: Log = []
    generator = marked(echo, log)("a")
    began = list(log)
    steps = [next(generator), generator.send("b"), generator.throw(KeyError("c")), generator.send("d")]
    during = list(log)
    with pytest.raises(StopIteration) as stop:
        generator.send("stop")

    assert isinstance(generator, types.GeneratorType)
    assert (generator.__name__, began, during, log) == ("echo", [], ["begin"], ["begin", "end"])
    assert steps == ["a", "b", "caught 'c'", "d"]
    assert stop.value.value == "stopped"


@pytest.mark.parametrize("how", ["closed", "dropped", "failed", "inside of another"])
def test_generator_that_is_not_exhausted(how: str) -> None:
    """To be closed, or dropped, is an end like any other; an error has its name."""
    log: Log = []
    generator = marked(echo, log)("a")
    if how == "inside of another":
        assert list(zip(generator, range(1), strict=False)) == [("a", 0)]
    else:
        next(generator)
    if how == "closed":
        generator.close()
    elif how == "failed":
        with pytest.raises(OSError, match="mine"):
            generator.throw(OSError("mine"))
    del generator
    gc.collect()

    assert log == ["begin", "OSError" if how == "failed" else "end"]


def test_nothing_is_held_between_steps() -> None:
    """What was yielded, sent or given lives no longer than without the mark: it would be in the measured memory."""
    given, sent = Big(), Big()
    references = [weakref.ref(given), weakref.ref(sent)]
    generator = marked(echo, [])(given)
    next(generator)
    del given
    generator.send(sent)
    del sent
    generator.send(None)

    assert [reference() for reference in references] == [None, None]


def test_coroutine_that_is_a_generator() -> None:
    """A generator function that ``types.coroutine`` made awaitable stays awaitable."""

    @types.coroutine
    def old() -> Generator[None, None, int]:
        """Wait once."""
        yield
        return 7

    log: Log = []

    async def main() -> int:
        """Return what it returns."""
        found: int = await marked(old, log)()
        return found

    assert asyncio.run(main()) == 7
    assert log == ["begin", "end"]


async def numbers(closed: list[str]) -> AsyncGenerator[object, object]:
    """Yield what is sent; note that it is closed."""
    got: object = 0
    try:
        while got != "stop":
            try:
                got = yield got
            except KeyError as error:
                got = f"caught {error}"
            await asyncio.sleep(0)
    finally:
        await asyncio.sleep(0)
        closed.append("closed")


def test_asynchronous_generator() -> None:
    """It passes on what is sent and thrown, and ends when it is exhausted, closed or left."""
    log: Log = []
    closed: list[str] = []
    wrapped = marked(numbers, log)

    async def main() -> list[object]:
        """Return the steps of one that is exhausted; another one is closed, and one is left open."""
        nonlocal kept
        one = wrapped(closed)
        found = [await anext(one), await one.asend("a"), await one.athrow(KeyError("b"))]
        with pytest.raises(StopAsyncIteration):
            await one.asend("stop")
        other = wrapped(closed)
        await anext(other)
        await other.aclose()
        kept = wrapped(closed)
        await anext(kept)
        return found

    kept: object = None
    steps = asyncio.run(main())  # closes what is left open

    assert kept is not None
    assert inspect.isasyncgenfunction(wrapped)
    assert steps == [0, "a", "caught 'b'"]
    assert closed == ["closed"] * 3
    assert log == ["begin", "end"] * 3


def test_kinds_of_functions() -> None:
    """The function of a functools.partial decides; a function that only returns a coroutine is an ordinary one."""

    async def fetch(_: str) -> None:
        """Do nothing."""

    assert context.flags_of(functools.partial(functools.partial(fetch, "a")))
    assert context.flags_of(echo)
    assert context.flags_of(numbers)
    assert not context.flags_of(lambda: fetch("a"))
    assert not context.flags_of(len)
