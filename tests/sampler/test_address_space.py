"""Tests of the question whether two processes share one address space."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from nncftools.sampler.tree import shared
from nncftools.session.session import Session
from tests.conftest import Run, burner

MIB = 2**20


def test_itself() -> None:
    """A process shares its address space with itself."""
    assert shared(os.getpid(), os.getpid())


@pytest.mark.process
def test_fork() -> None:
    """A forked copy has an address space of its own, though the same program."""
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(told, b"x")
        os.read(ready, 2)
        os._exit(0)
    try:
        assert not shared(child, os.getpid())
    finally:
        os.write(told, b"xx")
        os.waitpid(child, 0)
        os.close(ready)
        os.close(told)


@pytest.mark.process
def test_exec() -> None:
    """After exec a child has an address space of its own."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert not shared(child.pid, os.getpid())


def test_nobody() -> None:
    """With a process that is not there, nothing is shared."""
    assert not shared(os.getpid(), 2**22 + 1)


def test_child_before_exec(nncf_tools: Run, tmp_path: pathlib.Path) -> None:
    """However long a child of vfork(2) is kept from exec, its parent's memory does not count twice."""
    options = ("--quiet", "--type", "rss", "--interval", 0.01, "-o", "run.json")
    run = nncf_tools("monitor", *options, *burner("spawns", tmp_path / "truth", tmp_path / "pipe"))
    peak = Session.load(tmp_path / "run.json").peaks["rss"]
    rss = int((tmp_path / "truth").read_text())

    assert run.returncode == 0, run.stderr
    assert peak.low is not None
    assert rss > 100 * MIB
    assert rss * 0.98 < peak.low < 1.5 * rss
