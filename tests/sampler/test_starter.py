from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from nncftools.sampler.client import Interrupted, Starter, held_back
from nncftools.sampler.signals import CAUGHT, OF_FAULTS

USED = (*CAUGHT, *OF_FAULTS, signal.SIGCHLD)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Restore the signals."""
    before = {number: signal.getsignal(number) for number in USED}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    for number, handler in before.items():
        if handler is not None:
            signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def get(number: int) -> None:
    """Send this thread a signal."""
    signal.raise_signal(number)


def test_passes_to_whoever_is_named() -> None:
    """All signals go to the sampler of the running command."""
    passed: list[int] = []
    with Starter() as starter:
        starter.passes_to = passed.append
        for number in CAUGHT:
            get(number)

    assert passed == list(CAUGHT)
    assert starter.asked_to_end is None


def test_ends_what_has_not_begun() -> None:
    """The first signal that asks for the end while no command runs is kept; other signals have no effect."""
    with Starter() as starter:
        for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
            get(number)

    assert starter.asked_to_end == signal.SIGTERM


def test_interrupts_once_what_may_be_interrupted() -> None:
    """A signal interrupts showing results once; it does not interrupt what follows."""
    with Starter() as starter:
        with pytest.raises(Interrupted, match="SIGHUP"), starter.interruptible():
            list(map(get, (signal.SIGUSR1, signal.SIGHUP)))
        get(signal.SIGINT)


def test_nothing_ends_it_afterwards() -> None:
    """Every signal that came after the end is ignored, so that the exit status stays the command's."""
    with Starter():
        pass
    for number in (*CAUGHT, *(number for number in OF_FAULTS if signal.getsignal(number) is signal.SIG_IGN)):
        get(number)


def test_what_a_command_is_given() -> None:
    """The signals that were ignored or blocked before are known, and stay so."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
    with Starter() as starter:
        hang_up, child = signal.getsignal(signal.SIGHUP), signal.getsignal(signal.SIGCHLD)

    assert (hang_up, child) == (signal.SIG_IGN, signal.SIG_DFL)
    assert signal.SIGCHLD in starter.ignored
    assert signal.SIGUSR2 in starter.blocked


def test_held_back() -> None:
    """Signals wait, and arrive afterwards."""
    passed: list[int] = []
    with Starter() as starter:
        starter.passes_to = passed.append
        with held_back():
            get(signal.SIGTERM)
            meanwhile = list(passed)

    assert (meanwhile, passed) == ([], [signal.SIGTERM])
