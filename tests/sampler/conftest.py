from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sampler.fake_proc import FakeProc


@pytest.fixture(autouse=True)
def _given_back(tmp_path: Path) -> Iterator[None]:
    """Close what a test left open: trees and probes keep their descriptors for as long as the sampler lives."""
    before = set(_open_files())
    yield
    for descriptor, file in _open_files().items():
        if descriptor not in before and file.startswith((str(tmp_path), "/proc/")):
            os.close(descriptor)


def _open_files() -> dict[int, str]:
    """Return the descriptors of this process, and what they lead to."""
    found = {}
    for link in Path("/proc/self/fd").iterdir():
        try:
            found[int(link.name)] = str(link.readlink())
        except FileNotFoundError:  # that of the folder itself
            continue
    return found


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    """Return a fake proc directory that holds process 1."""
    return FakeProc(tmp_path)
