"""NVIDIA's GPUs by NVML, through ``libnvidia-ml.so.1`` of the driver (NVML API Reference Guide; nvml.h).

A MIG instance is a device of its own. ``CUDA_VISIBLE_DEVICES`` has no effect on NVML: devices are numbered by their PCI
addresses.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import time
from ctypes import Structure, byref, c_char_p, c_uint, c_ulonglong, c_void_p, create_string_buffer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from typing import Any

    from nncftools.sampler.devices.helper import Run
    from nncftools.sampler.tree import Process

LIBRARY = "libnvidia-ml.so.1"
FOR_TESTS = "NNCF_TOOLS_NVML"
"""The environment variable that names another library; only tests set it."""
_SUCCESS, _NOT_SUPPORTED, _NO_PERMISSION, _INSUFFICIENT_SIZE, _NO_FUNCTION = 0, 3, 4, 7, 13
_NOT_AVAILABLE = (1 << 64) - 1
"""NVML_VALUE_NOT_AVAILABLE, of ``usedGpuMemory``."""
_ALWAYS = 100
"""Per cent."""
_TEXT = 96
_MORE = 16
"""Room for processes that begin between two calls."""
_MOST, _MOST_DEVICES = 4096, 64
"""Entries for which there is room at most, and devices that are asked for at most, whatever a driver says."""
_TRIES = 5
_ENTRY = struct.Struct("IQ")
"""PID and bytes: how an entry of a list begins, in each version of ``nvmlProcessInfo_t``."""
_SIZES = (16, 24, 32)
"""Of an entry, in bytes: of version 1, of version 2, and of the same with ``usedGpuCcProtectedMemory``."""
_UNWRITTEN = b"\xa5"
"""Fills the room for entries: none ends with it."""
_OF_CUDA = ("/dev/nvidia-uvm", "/dev/dxg")
"""What CUDA needs and NVML does not, and what both need in WSL, where the lists are empty."""
_FIRST_NAMESPACE = "pid:[4026531836]"
"""The PID namespace of the machine (PROC_PID_INIT_INO, include/linux/proc_ns.h)."""
NOT_TOLD = "the driver does not tell what a process holds (WSL, MIG and some containers)"
OF_HOST = "the driver names processes by their PIDs on the host, which are unknown in this container"
NOT_NAMED = "the driver names no process here (WSL and some containers)"


class _Memory(Structure):
    """``nvmlMemory_t``, bytes."""

    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


class _Rates(Structure):
    """``nvmlUtilization_t``, per cent."""

    _fields_ = (("gpu", c_uint), ("memory", c_uint))


class Device:
    """A GPU, or an instance of one."""

    def __init__(self, name: str, handle: c_void_p) -> None:
        self.name = name
        """``nvidia0``, ``nvidia0.mig1``."""
        self.handle = handle
        self.facts: dict[str, object] = {"device": name}


class Nvml:
    """Reads all devices; to begin can take seconds without persistence mode."""

    what = "NVIDIA's GPUs"
    every_s = 0.5
    share = 0.01
    clock = staticmethod(time.monotonic)
    """A reading may wait for locks of the driver, so its whole time counts."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._library: Any = None
        self._devices: list[Device] = []
        self._is_container = True
        with contextlib.suppress(OSError):
            self._is_container = os.readlink(f"{proc}/self/ns/pid") != _FIRST_NAMESPACE

    def read(self, run: Run) -> Mapping[str, float | None]:
        """Return memory in bytes and load in per cent by column."""
        values: dict[str, float | None] = {}
        processes = run.processes()  # first: one that ends before the driver lists it holds nothing
        for device in self._devices:
            memory, rates = _Memory(), _Rates()
            failed = self._call("nvmlDeviceGetMemoryInfo", device.handle, byref(memory))
            unknown = self._call("nvmlDeviceGetUtilizationRates", device.handle, byref(rates)) or rates.gpu > _ALWAYS
            held, missing = self._held(device, processes, memory.total or _NOT_AVAILABLE)
            if failed not in {_SUCCESS, _NOT_SUPPORTED}:  # GB10 has no memory of its own, but tells what processes hold
                held, missing = None, f"the driver does not answer: {self._error(failed)}"
            if missing and device.facts.get("missing") != missing:  # once for each reason
                device.facts["missing"] = missing
                run.write("device", device.facts)
            values[f"device_memory@{device.name}"] = held
            values[f"device_used@{device.name}"] = None if failed or memory.used > memory.total else memory.used
            values[f"device_busy@{device.name}"] = None if unknown else rates.gpu
        return values

    def begin(self, run: Run) -> bool:
        """Load the library, and find the devices; return whether there are any."""
        try:
            self._library = ctypes.CDLL(os.environ.get(FOR_TESTS) or LIBRARY)
        except OSError:
            return False
        count = c_uint()
        for function, *arguments in (("nvmlInit_v2",), ("nvmlDeviceGetCount_v2", byref(count))):
            if failed := self._call(function, *arguments):
                run.write("warning", f"memory of {self.what} is unknown: {function}: {self._error(failed)}")
                return False
        for number in range(min(count.value, _MOST_DEVICES)):
            handle, name = c_void_p(), f"nvidia{number}"
            if (failed := self._call("nvmlDeviceGetHandleByIndex_v2", number, byref(handle))) == _SUCCESS:
                self._devices += list(self._instances(name, handle)) or [Device(name, handle)]
            elif failed != _NO_PERMISSION:  # this user, or this control group, cannot use it either
                run.write("warning", f"memory of {name} is unknown: {self._error(failed)}")
        for device in self._devices:
            memory = _Memory()
            device.facts["model"] = self._text("nvmlDeviceGetName", device)
            device.facts["uuid"] = self._text("nvmlDeviceGetUUID", device)
            self._call("nvmlDeviceGetMemoryInfo", device.handle, byref(memory))
            device.facts["memory"] = memory.total or None
            run.write("device", device.facts)
        return bool(self._devices)

    def _instances(self, name: str, handle: c_void_p) -> Iterator[Device]:
        """Yield the MIG instances of a GPU."""
        enabled, pending, most = c_uint(), c_uint(), c_uint()
        if self._call("nvmlDeviceGetMigMode", handle, byref(enabled), byref(pending)) or not enabled.value:
            return
        self._call("nvmlDeviceGetMaxMigDeviceCount", handle, byref(most))
        for number in range(min(most.value, _MOST_DEVICES)):
            instance = c_void_p()
            if self._call("nvmlDeviceGetMigDeviceHandleByIndex", handle, number, byref(instance)) == _SUCCESS:
                yield Device(f"{name}.mig{number}", instance)

    def _held(self, device: Device, of_run: Collection[Process], too_much: int) -> tuple[int | None, str]:
        """Return what processes hold; or None, and why that is unknown."""
        listed: dict[int, int | None] = {}
        for kind in ("Compute", "Graphics"):
            processes, failed = self._processes(f"nvmlDeviceGet{kind}RunningProcesses", device.handle)
            if failed and (kind == "Compute" or failed not in {_NOT_SUPPORTED, _NO_FUNCTION}):
                return None, f"{NOT_TOLD}: {self._error(failed)}"
            for pid, used in processes:  # a process of both kinds is in both lists
                before = listed.get(pid)
                listed[pid] = before if used >= too_much else max(used, before or 0)
        own = [listed[process.pid] for process in of_run if process.pid in listed]
        is_of_host = self._is_container and not all(os.path.exists(f"{self._proc}/{pid}") for pid in listed)
        if self._is_container and (is_of_host or not own):
            users = {process.pid for process in of_run if _uses_cuda(process.path)}
            if is_of_host and not users & listed.keys():  # a PID of the run may be that of another process there
                return None, OF_HOST
            if users and not own:
                return None, NOT_NAMED
        known = [used for used in own if used is not None]
        return (None, NOT_TOLD) if len(known) < len(own) else (sum(known), "")

    def _processes(self, function: str, handle: c_void_p) -> tuple[Collection[tuple[int, int]], int]:
        """Return PID and bytes of each process that a device runs, and the status: why there are none.

        With too little room, the driver says how much it needs; more processes may begin until the next call.
        How long an entry is, is seen from what was written: ``_v3`` writes 24 bytes, but of drivers from 535.43 on 32
        (github.com/XuehaiPan/nvitop/pull/79, /issues/88), and of a 550.127 in a container 16 (/pull/226).
        """
        for version in ("_v3", "_v2", ""):
            count = c_uint(_MORE)
            for _ in range(_TRIES):
                room = create_string_buffer(_UNWRITTEN * (count.value * _SIZES[-1]))
                status = self._call(function + version, handle, byref(count), room)
                if status != _INSUFFICIENT_SIZE:
                    break
                count.value = min(count.value, _MOST) + _MORE
            if status == _SUCCESS:
                number, data = min(count.value, len(room) // _SIZES[-1]), room.raw[:-1]
                written = len(data.rstrip(_UNWRITTEN))
                size = next((size for size in _SIZES if size * number >= written), _SIZES[1 if version else 0])
                return [_ENTRY.unpack_from(data, size * place) for place in range(number)], _SUCCESS
            if status != _NO_FUNCTION:
                break
        return (), status

    def _text(self, function: str, device: Device) -> str:
        text = create_string_buffer(_TEXT)
        self._call(function, device.handle, text, c_uint(_TEXT))
        return text.value.decode(errors="replace")

    def _error(self, status: int) -> str:
        function = self._library.nvmlErrorString
        function.restype = c_char_p
        text: bytes = function(status) or b""
        return text.decode(errors="replace")

    def _call(self, function: str, *arguments: object) -> int:
        """Return the status of a call: 0, or why it failed; older drivers lack functions."""
        try:
            status: int = getattr(self._library, function)(*arguments)
        except AttributeError:
            return _NO_FUNCTION
        return status


def _uses_cuda(folder: str) -> bool:
    """Return whether a process has a device open that CUDA needs."""
    try:
        return any(os.readlink(f"{folder}/fd/{name}") in _OF_CUDA for name in os.listdir(f"{folder}/fd"))
    except OSError:
        return False
