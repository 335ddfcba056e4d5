from __future__ import annotations

import os
import types
from pathlib import Path
from typing import Any

import pytest

from nncftools.sampler import devices
from nncftools.sampler.devices import Drm

MIB = 1 << 20
I915 = """pos:\t0
drm-driver:\ti915
drm-client-id:\t7
drm-pdev:\t0000:03:00.0
drm-total-system0:\t64 MiB
drm-shared-system0:\t0
drm-active-system0:\t0
drm-resident-system0:\t48 MiB
drm-purgeable-system0:\t16 MiB
drm-total-local0:\t3 MiB
drm-resident-local0:\t2048 KiB
drm-engine-render:\t25662044495 ns
"""
XE = """drm-driver:\txe
drm-client-id:\t9
drm-pdev:\t0000:03:00.0
drm-total-vram0:\t200 MiB
drm-resident-vram0:\t100 MiB
drm-total-gtt:\t8 MiB
drm-resident-gtt:\t8 MiB
drm-cycles-rcs:\t28257900
drm-total-cycles-rcs:\t7655183225
"""
AMDGPU = """drm-driver:\tamdgpu
drm-client-id:\t4
drm-pdev:\t0000:03:00.0
drm-memory-vram:\t1024 KiB
drm-memory-gtt:\t2048 KiB
drm-memory-cpu:\t0 KiB
drm-memory-gds:\t64 KiB
drm-memory-gws:\t64 KiB
drm-memory-oa:\t64 KiB
drm-memory-doorbell:\t8192 KiB
amd-memory-visible-vram:\t1024 KiB
"""
IVPU = """drm-driver:\tintel_vpu
drm-client-id:\t3
drm-pdev:\t0000:00:0b.0
drm-total-memory:\t4096
drm-shared-memory:\t0
drm-active-memory:\t0
drm-resident-memory:\t4096
"""


class Machine:
    """Fake trees of /proc and /sys; and a run of which all processes are."""

    def __init__(self, folder: Path) -> None:
        self.sys = folder / "sys"
        self.proc = folder / "proc"
        self.pids: list[int] = []
        self.written: list[tuple[str, object]] = []

    def add_device(self, kind: str, node: str, address: str, driver: str) -> Path:
        """Add a node of a device; return the device's folder."""
        device = self.sys / "devices" / address
        if not device.exists():
            device.mkdir(parents=True)
            (device / "driver").symlink_to(f"../../bus/pci/drivers/{driver}")
        (self.sys / "class" / kind / node).mkdir(parents=True)
        (self.sys / "class" / kind / node / "device").symlink_to(device)
        return device

    def open(self, pid: int, descriptor: int, node: str, fdinfo: str) -> Path:
        """Give a process a descriptor; return the path of what the kernel says of it."""
        for name in ("fd", "fdinfo"):
            (self.proc / str(pid) / name).mkdir(parents=True, exist_ok=True)
        (self.proc / str(pid) / "fd" / str(descriptor)).symlink_to(node)
        path = self.proc / str(pid) / "fdinfo" / str(descriptor)
        path.write_text(fdinfo)
        self.pids += [] if pid in self.pids else [pid]
        return path

    def processes(self) -> list[Any]:
        """Return them."""
        return [types.SimpleNamespace(pid=pid, path=str(self.proc / str(pid))) for pid in self.pids]

    def write(self, key: str, value: object) -> None:
        """Keep a line."""
        self.written.append((key, value))

    def read(self, of: Drm) -> dict[str, float | None]:
        """Return what a source reads."""
        return dict(of.read(self))  # type: ignore[arg-type] # what it asks of a run


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Return a machine with one GPU."""
    machine = Machine(tmp_path)
    machine.add_device("drm", "renderD128", "0000:03:00.0", "xe")
    machine.add_device("drm", "card0", "0000:03:00.0", "xe")
    return machine


@pytest.mark.parametrize(
    "fdinfo, local, system",
    [(I915, 2 * MIB, 48 * MIB), (XE, 100 * MIB, 8 * MIB), (AMDGPU, MIB, 2 * MIB)],
    ids=["i915", "xe", "amdgpu"],
)
def test_drivers(fdinfo: str, local: int, system: int, machine: Machine) -> None:
    """Memory of the device and of the system are apart, whatever a driver calls its regions."""
    machine.open(11, 5, "/dev/dri/renderD128", fdinfo)

    values = machine.read(Drm(str(machine.sys)))

    assert values == {"device_memory@gpu0": local, "device_memory@gpu0.system": system}


def test_npu(machine: Machine) -> None:
    """An NPU has no memory of its own; as a whole it says what everyone holds and how long it worked."""
    folder = machine.add_device("accel", "accel0", "0000:00:0b.0", "intel_vpu")
    (folder / "npu_memory_utilization").write_text("8192\n")
    (folder / "npu_busy_time_us").write_text("1000000\n")
    machine.open(11, 5, "/dev/accel/accel0", IVPU)
    of = Drm(str(machine.sys))
    first = machine.read(of)

    (folder / "npu_busy_time_us").write_text("9000000000\n")
    of._npus_at_s = 0.0
    second = machine.read(of)

    assert first == {"device_memory@npu0.system": 4096, "device_used@npu0": 8192}
    assert second["device_busy@npu0"] == 100


@pytest.mark.parametrize("fdinfo", ["pos:\t0\n", "drm-driver:\ti915\ndrm-client-id:\t7\ndrm-engine-render:\t0 ns\n"])
def test_driver_that_does_not_tell(fdinfo: str, machine: Machine) -> None:
    """What a process holds of a device whose driver does not tell is unknown, not nothing; a warning says so, once."""
    machine.add_device("accel", "accel0", "0000:00:0b.0", "qaic")
    machine.open(11, 5, "/dev/accel/accel0", fdinfo)
    machine.open(11, 6, "/dev/dri/renderD128", XE)
    of = Drm(str(machine.sys))
    values = [machine.read(of), machine.read(of)]
    of._look_at_s = of._look_again_at_s = 0.0

    assert [*values, machine.read(of)] == [
        {"device_memory@npu0": None, "device_memory@gpu0": 100 * MIB, "device_memory@gpu0.system": 8 * MIB}
    ] * 3
    assert machine.written == [
        ("warning", "memory of npu0 is unknown: the driver does not report the memory of a process")
    ]


def test_client_counts_once(machine: Machine) -> None:
    """A client with several descriptors, also in a forked process, counts once; others are added."""
    machine.open(11, 5, "/dev/dri/renderD128", XE)
    machine.open(11, 6, "/dev/dri/card0", XE)
    machine.open(12, 5, "/dev/dri/renderD128", XE)
    machine.open(12, 7, "/dev/dri/renderD128", XE.replace("client-id:\t9", "client-id:\t10"))
    machine.add_device("drm", "renderD127", "0000:01:00.0", "nvidia")  # read by NVML
    machine.add_device("drm", "renderD129", "0000:04:00.0", "amdgpu")
    machine.open(11, 7, "/dev/dri/renderD129", AMDGPU.replace("client-id:\t4", "client-id:\t9"))
    machine.pids.append(13)  # it has ended
    values = machine.read(Drm(str(machine.sys)))

    assert (values["device_memory@gpu0"], values["device_memory@gpu1"]) == (200 * MIB, MIB)


def test_change_between_looks(machine: Machine) -> None:
    """Between looks for descriptors, those that are known are read; one that is another one's by now makes it look."""
    path = machine.open(11, 5, "/dev/dri/renderD128", XE)
    of = Drm(str(machine.sys))
    machine.read(of)
    path.write_text(XE.replace("resident-vram0:\t100", "resident-vram0:\t150"))
    grown = machine.read(of)
    path.write_text("pos:\t0\nflags:\t02\n")
    of._look_again_at_s = 0.0
    closed = machine.read(of)

    assert grown["device_memory@gpu0"] == 150 * MIB
    assert closed == {"device_memory@gpu0": 0, "device_memory@gpu0.system": 0}


def test_processes_of_others(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """What may not be read is a warning, once; the other processes count."""
    machine.open(11, 5, "/dev/dri/renderD128", XE)
    machine.open(12, 5, "/dev/dri/renderD128", XE.replace("client-id:\t9", "client-id:\t10"))
    listdir = os.listdir

    def refused(folder: object) -> list[str]:
        if str(folder).endswith("/12/fd"):
            raise PermissionError
        return listdir(str(folder))

    monkeypatch.setattr(devices.os, "listdir", refused)
    of = Drm(str(machine.sys))
    values = machine.read(of)
    of._look_at_s = of._look_again_at_s = 0.0
    machine.read(of)

    assert values["device_memory@gpu0"] == 100 * MIB
    assert machine.written == [("warning", "GPU and NPU memory of other users' processes is unknown")]
