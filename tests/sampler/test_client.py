from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from nncftools.journal import reading
from nncftools.journal.writing import Plan
from nncftools.sampler import client
from nncftools.sampler.client import Starter
from nncftools.sampler.signals import CAUGHT, OF_FAULTS

pytestmark = pytest.mark.process

OWN = {*sys.stdlib_module_names, "__main__", "nncftools"}


def test_what_a_recording_changes_of_its_starter(tmp_path: pathlib.Path) -> None:
    """Afterwards no signal ends it, for only the exit with the command's status is to come."""
    before = {number: signal.getsignal(number) for number in (*CAUGHT, *OF_FAULTS)}
    plan = Plan(["rss"])
    journal = reading.create(tmp_path / "j", replace=False)
    try:
        with Starter() as starter, client.Sampler(starter, plan, ["sh", "-c", "exit 3"]) as sampler:
            sampler.start(client.header("", [], None, plan), journal)
            outcome = sampler.wait()
        after = {signal.getsignal(number) for number in CAUGHT}
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

    assert after == {signal.SIG_IGN}
    assert (outcome.exit_code, outcome.status, outcome.lost) == (3, {"code": 3, "signal": None}, None)


def test_interrupt_before_the_start_starts_nothing(tmp_path: pathlib.Path) -> None:
    """A Ctrl-C that comes before the sampler knew signals ends it without starting the command."""
    script = (
        "import os, signal, sys\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "os.execv(sys.executable, [sys.executable, '-I', '-S', *sys.argv[1:]])"
    )
    journal = reading.create(tmp_path / "j", replace=False)
    order = client._order(Plan(["rss"]), ["touch", str(tmp_path / "started")], None, Starter(), [])
    incoming, to_sampler = os.pipe()
    from_sampler, outgoing = os.pipe()
    os.write(to_sampler, json.dumps(order).encode() + b"\n")
    main = str(pathlib.Path(client.__file__).parent / "__main__.py")
    words = [sys.executable, "-c", script, main, *map(str, (journal, incoming, outgoing))]
    status = subprocess.run(words, check=False, pass_fds=(journal, incoming, outgoing)).returncode
    told = os.read(from_sampler, 4096)
    for descriptor in (journal, incoming, to_sampler, from_sampler, outgoing):
        os.close(descriptor)

    assert status == 130
    assert "interrupted before" in (tmp_path / "j").read_text()
    assert json.loads(told) == {"end": {"error": "interrupted before the command began"}}
    assert not (tmp_path / "started").exists()


def test_sampler_loads_the_standard_library_only() -> None:
    """Nothing of the caller's site packages is in the sampler, and neither are heavy modules."""
    script = "import sys; sys.path.append(sys.argv[1]); import nncftools.sampler.service, nncftools.sampler.proc_source"
    words = [sys.executable, "-I", "-S", "-c", f"{script}; print(*sorted(sys.modules))"]
    here = str(pathlib.Path(__file__).parents[2])
    loaded = subprocess.run([*words, here], capture_output=True, text=True, check=True).stdout.split()
    third_party = {name for name in loaded if name.partition(".")[0] not in OWN}

    assert third_party == set()
    assert {"typing", "dataclasses", "subprocess", "pathlib", "asyncio", "socket"} & set(loaded) == set()
