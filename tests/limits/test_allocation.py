from __future__ import annotations

import signal

import pytest

from nncftools.limits.judges import verdict
from nncftools.session.model import Exit
from nncftools.units import MemoryUnit
from tests.limits.deaths import address_space, child, failure, judged, run
from tests.made_up import MIB


@pytest.mark.parametrize(("fatal", "certainty"), [(True, "certain"), (False, "likely")])
def test_exception(fatal: bool, certainty: str) -> None:  # noqa: FBT001 — a parameter of the test
    """An exception that ended the program is certain; one that ended a call is likely the reason of a failure."""
    found = judged(run(failures=[failure("memory", fatal=fatal, error="MemoryError")]))

    assert (found.cause, found.certainty, found.at_s) == ("allocation_failed", certainty, 0.9)
    assert found.text == "the command work (pid 100) could not allocate memory (MemoryError)"


def test_exception_that_did_no_harm() -> None:
    """A program that caught it and succeeded has no verdict."""
    session = run(Exit(code=0), failures=[failure("memory", fatal=False)])

    assert verdict(session, MemoryUnit.MiB) is None


@pytest.mark.parametrize(("size_mib", "certainty"), [(310, "likely"), (400, "possible")])
def test_limit_of_address_space(size_mib: int, certainty: str) -> None:
    """Without a hook, a failure under a limit is likely its work if most of it was in use."""
    found = judged(run(memory_limits=[address_space(size_mib)]))

    assert (found.cause, found.certainty) == ("allocation_failed", certainty)
    assert found.limit is not None
    assert found.limit.size == size_mib * MIB


@pytest.mark.parametrize(("number", "certainty"), [(signal.SIGABRT, "likely"), (signal.SIGSEGV, "possible")])
def test_signal_under_a_limit(number: int, certainty: str) -> None:
    """C++ aborts when an allocation fails; a C program that ignores that touches a null pointer."""
    found = judged(run(Exit(signal=number), memory_limits=[address_space(400)]))

    assert (found.cause, found.certainty) == ("allocation_failed", certainty)


def test_limit_beyond_the_machine() -> None:
    """A limit that is larger than the machine explains nothing."""
    assert verdict(run(memory_limits=[address_space(2000)]), MemoryUnit.MiB) is None


def test_little_of_the_limit() -> None:
    """A program that used little of it failed for another reason."""
    assert verdict(run(memory_limits=[address_space(900)]), MemoryUnit.MiB) is None


def test_another_exception() -> None:
    """So did one whose exception says nothing of memory."""
    session = run(memory_limits=[address_space(310)], failures=[failure(None, error="ValueError")])

    assert verdict(session, MemoryUnit.MiB) is None


def test_child_while_the_command_says_0() -> None:
    """A child whose program an exception ended has a verdict, too."""
    session = run(Exit(code=0), child(end=Exit(code=1), pid=7), failures=[failure("memory", pid=7)])

    assert judged(session).text == "worker (pid 7) could not allocate memory (SomeError)"
