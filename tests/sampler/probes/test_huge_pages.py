from __future__ import annotations

import pathlib

import pytest

from nncftools.sampler.probes import machine
from nncftools.sampler.probes.machine import HugePages
from tests.sampler.fake_proc import FakeProc

MIB = 2**20
VMSTAT = "nr_free_pages 1\nthp_fault_alloc {}\nthp_fault_fallback 99\nthp_collapse_alloc {}\nthp_file_mapped {}\nx 1\n"


@pytest.fixture
def settings(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Return a folder of settings of a machine with huge pages of 2 MiB."""
    folder = tmp_path / "settings"
    (folder / "hugepages-2048kB").mkdir(parents=True)
    (folder / "hugepages-2048kB" / "enabled").write_text("[always] inherit madvise never\n")
    (folder / "hpage_pmd_size").write_text(f"{2 * MIB}\n")
    monkeypatch.setattr(machine, "SETTINGS", str(folder))
    return folder


def probe(proc: FakeProc, *counts: int) -> HugePages:
    """Return the probe of a machine with these counts."""
    write(proc, *counts)
    return HugePages(str(proc.root))


def write(proc: FakeProc, *counts: int) -> None:
    """Write other counts into the same file."""
    (proc.root / "vmstat").write_text(VMSTAT.format(*counts))


@pytest.mark.usefixtures("settings")
def test_since_the_start(proc: FakeProc) -> None:
    """The bytes in huge pages count from the first reading; those of all three kinds are added."""
    of = probe(proc, 5, 6, 7)
    first = of.latest
    write(proc, 6, 8, 10)

    assert (first, of.count(), of.latest, of.read()) == (0, 12 * MIB, 12 * MIB, [12 * MIB])
    assert of.is_new


def test_sizes_that_are_off(proc: FakeProc, settings: pathlib.Path) -> None:
    """Other sizes that are switched off, or that files only have, do not matter."""
    for name, text in (("hugepages-64kB", "always inherit madvise [never]\n"), ("hugepages-32kB", None)):
        (settings / name).mkdir()
        if text is not None:
            (settings / name / "enabled").write_text(text)

    assert probe(proc, 0, 0, 0).count() == 0


@pytest.mark.parametrize("mode", ["[always] inherit madvise never", "always [inherit] madvise never"])
def test_several_sizes(proc: FakeProc, settings: pathlib.Path, mode: str) -> None:
    """Where smaller huge pages are in use, nothing is known: the counts are not theirs."""
    (settings / "hugepages-64kB").mkdir()
    (settings / "hugepages-64kB" / "enabled").write_text(mode)
    of = probe(proc, 1, 2, 3)

    assert (of.latest, of.count(), of.read()) == (None, None, [None])


def test_kernel_without_huge_pages(proc: FakeProc, settings: pathlib.Path) -> None:
    """A kernel without huge pages has none, whatever the counts say."""
    (settings / "hpage_pmd_size").unlink()

    assert probe(proc, 1, 2, 3).count() == 0


def test_settings_that_cannot_be_read(proc: FakeProc, settings: pathlib.Path) -> None:
    """Where the settings are not understood, nothing is known."""
    (settings / "hpage_pmd_size").write_text("many\n")

    assert probe(proc, 1, 2, 3).count() is None


@pytest.mark.usefixtures("settings")
def test_without_counts(proc: FakeProc) -> None:
    """Without the file nothing is known; a kernel without some of the counts has those of the others."""
    missing = HugePages(str(proc.root))
    (proc.root / "vmstat").write_text("a 1\nthp_fault_alloc 3\n")
    some = HugePages(str(proc.root))
    (proc.root / "vmstat").write_text("a 1\nthp_fault_alloc 4\n")

    assert (missing.count(), some.count()) == (None, 2 * MIB)
