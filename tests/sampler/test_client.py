from __future__ import annotations

import json
import pathlib
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from nncftools.metrics import COUNTERS
from nncftools.sampler import client
from nncftools.sampler.signals import CAUGHT

if TYPE_CHECKING:
    from nncftools.sampler.plan import Plan

OWN = {*sys.stdlib_module_names, "__main__", "nncftools"}


def plan(*argv: str) -> Plan:
    """Return a plan that runs ``argv``."""
    return {
        "argv": list(argv),
        "pid": None,
        "interval_s": 0.1,
        "duration_s": None,
        "children": True,
        "columns": ["rss", *COUNTERS],
        "source": "proc",
        "wait_all": False,
        "per_process": False,
        "channel": None,
        "max_samples": 1000,
        "marks": None,
        "signal_mask": client.blocked_signals(),
    }


def test_handlers_are_restored(tmp_path: pathlib.Path) -> None:
    """After a recording, the caller's signal handlers and mask are what they were."""
    before = [signal.getsignal(number) for number in CAUGHT], client.blocked_signals()
    with client.Sampler({}, plan("true"), tmp_path / "j") as sampler:
        sampler.wait()

    assert ([signal.getsignal(number) for number in CAUGHT], client.blocked_signals()) == before


def test_journal_that_exists_is_kept(tmp_path: pathlib.Path) -> None:
    """A journal is never written over."""
    (tmp_path / "j").write_text("precious")

    with pytest.raises(FileExistsError):
        client.Sampler({}, plan("true"), tmp_path / "j")
    assert (tmp_path / "j").read_text() == "precious"


def test_interrupt_before_the_start_starts_nothing(tmp_path: pathlib.Path) -> None:
    """A Ctrl-C that comes before the sampler knew signals ends it without starting the command."""
    script = (
        "import json, os, signal, sys\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "os.execv(sys.executable, [sys.executable, '-I', '-S', *sys.argv[1:]])"
    )
    journal = tmp_path / "j"
    journal.write_text(json.dumps({"plan": plan("touch", str(tmp_path / "started"))}) + "\n")
    main = str(pathlib.Path(client.__file__).parent / "__main__.py")
    status = subprocess.run([sys.executable, "-c", script, main, str(journal)], check=False).returncode

    assert status == 130
    assert "interrupted before" in journal.read_text()
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
