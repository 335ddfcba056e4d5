from __future__ import annotations

import _thread
import os
import pathlib
import threading
import types
from collections.abc import Callable, Iterator

import pytest

from nncftools.sampler.probes import smaps
from tests.sampler.fake_proc import FakeProc
from tests.surroundings import HANGING_S


@pytest.fixture(autouse=True)
def _given_back(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close what a test left open: trees and probes keep their descriptors for as long as the sampler lives.

    A thread of the slow probe closes its own descriptors: it ends before.
    """
    passes: list[threading.Event] = []

    def start(function: Callable[..., None], arguments: tuple[object, ...]) -> None:
        ended = threading.Event()

        def run() -> None:
            try:
                function(*arguments)
            finally:
                ended.set()

        _thread.start_new_thread(run, ())
        passes.append(ended)

    monkeypatch.setattr(smaps, "_thread", types.SimpleNamespace(start_new_thread=start))
    before = set(_open_files())
    yield
    assert all(ended.wait(HANGING_S) for ended in passes)
    for descriptor, file in _open_files().items():
        if descriptor not in before and file.startswith((str(tmp_path), "/proc/")):
            os.close(descriptor)


def _open_files() -> dict[int, str]:
    """Return the descriptors of this process, and what they lead to."""
    found = {}
    for link in pathlib.Path("/proc/self/fd").iterdir():
        try:
            found[int(link.name)] = str(link.readlink())
        except FileNotFoundError:  # that of the folder itself
            continue
    return found


@pytest.fixture
def proc(tmp_path: pathlib.Path) -> FakeProc:
    """Return a fake proc directory that holds process 1."""
    return FakeProc(tmp_path)
