"""The helper process that asks the drivers of GPUs and NPUs how much device memory a run uses.

A driver may take seconds to start, may hang, and may crash. So each kind of driver has a thread, and no other process
waits for this process. When the sampler closes the pipe, this process ends, even if a thread hangs. This process writes
lines of JSON, and the sampler passes the lines on to the journal. Each line has a single key:

- ``sources``: the names of all kinds of drivers that are read;
- ``devices``: a reading. ``t_ns`` is the time (CLOCK_MONOTONIC), ``of`` is the kind of driver, ``values`` has a value
  for each column, and ``next_s`` is the number of seconds until the next reading;
- ``device``: the facts about a device;
- ``warning``: a text for the user;
- ``ended``: the kind of driver that is no longer read, and the error. Without an error, the text is empty.

``Nvml`` reads NVIDIA's GPUs through the driver's ``libnvidia-ml.so.1`` (NVML API Reference Guide; nvml.h). A MIG
instance counts as a device. ``CUDA_VISIBLE_DEVICES`` has no effect on NVML: devices are numbered by their PCI
addresses.

``Drm`` reads GPUs and NPUs of Intel, AMD and others. If the descriptor N of a process is open on ``/dev/dri`` or
``/dev/accel``, ``/proc/PID/fdinfo/N`` has lines ``drm-KEY: VALUE [UNIT]`` (Documentation/gpu/drm-usage-stats.rst).
Descriptors with the same ``drm-client-id`` belong to the same client, even in forked processes, and each descriptor
shows all memory of the client. Device memory and system memory are recorded separately, because RSS may include the
system memory. Intel's NPU also reports the memory of all users together and the busy time: ``npu_memory_utilization``
in bytes and ``npu_busy_time_us`` (Documentation/ABI/testing/sysfs-driver-ivpu…; drivers/accel/ivpu/ivpu_sysfs.c).
"""

from __future__ import annotations

import _thread
import ctypes
import json
import os
import re
import select
import signal
import struct
import time
from contextlib import suppress
from ctypes import Structure, byref, c_char_p, c_uint, c_ulonglong, c_void_p, create_string_buffer

from nncftools.sampler.tree import Tree, detach, read_number, read_small_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from typing import Any

    from nncftools.sampler.tree import Process

    Client = tuple[str, bytes]
    """A DRM client (an opened device file): the name of the device, such as ``gpu0``, and ``drm-client-id``."""


class WatchedRun:
    """The processes of a run, and the pipe to the sampler. Several threads may use an object at the same time."""

    def __init__(self, tree: Tree, output: int, *, children: bool = True) -> None:
        self._tree = tree
        self._output = output
        self._children = children
        self._lock = _thread.allocate_lock()

    def processes(self) -> list[Process]:
        """Return the living processes."""
        with self._lock:
            self._tree.refresh()
            for process in list(self._tree.processes):
                if not _is_alive(process):
                    self._tree.remove(process)
            if self._tree.processes:
                self._tree.children = self._children
            return list(self._tree.processes)

    def write(self, key: str, value: object) -> None:
        """Write a line to the sampler. A pipe never splits a short line (PIPE_BUF, pipe(7))."""
        text = json.dumps({key: value}, separators=(",", ":"))
        with self._lock, suppress(OSError):
            os.write(self._output, f"{text}\n".encode())


def _is_alive(process: Process) -> bool:
    try:
        return bool(os.pread(process.files[0], 64, 0))
    except OSError:
        return bool(process.read_slot(0))


OUTPUT = 1
_REPEAT_NS = 500_000_000


def follow(source: Nvml | Drm, run: WatchedRun, sleep: Callable[[float], None] = time.sleep) -> None:
    """Read a source again and again, with longer pauses if readings are slow.

    The fastest of the last three readings sets the pause, because a reading on a busy machine may be slow by chance. If
    the values have not changed, they are written again only after 0.5 s.
    """
    if not source.begin(run):
        return
    written: object = None
    written_ns = 0
    costs_s = [0.0, 0.0]
    while True:
        begun_s = source.clock()
        values = source.read(run)
        now_ns = time.monotonic_ns()
        costs_s = [*costs_s[-2:], source.clock() - begun_s]
        wait_s = max(source.every_s, min(costs_s) / source.share)
        reading = (values, round(wait_s))
        # written even without values, to show that the source works
        if reading != written or now_ns - written_ns >= _REPEAT_NS:
            written = reading
            written_ns = now_ns
            times = {"t_ns": now_ns, "next_s": wait_s}
            run.write("devices", {**times, "of": source.label, "values": values})
        sleep(wait_s)


def _end() -> None:
    """End this process, and the processes that a driver has forked."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def main(sampler: int, pid: int, children: int, *, is_detached: bool) -> None:
    """Read all sources until the sampler is gone.

    ``sampler`` is the PID of the sampler, which is the parent of the command and of orphans. If the recording is
    attached to a running process, ``sampler`` is 0, and ``pid`` is the PID of the attached process. ``children`` is 1
    if descendants belong to the run. With ``is_detached``, the measured program has started this helper process, so the
    helper stops being a child of the program.
    """
    if is_detached:
        detach()
    tree = Tree("/proc", ["statm"], reaper=sampler or None, children=bool(children or sampler))
    if pid:
        tree.add(pid)
    output = os.dup(OUTPUT)
    os.dup2(2, OUTPUT)  # text that a driver prints must not reach the sampler
    run = WatchedRun(tree, output, children=bool(children))
    sources: list[Nvml | Drm] = [Nvml(), Drm()]
    running = list(sources)
    run.write("sources", [source.label for source in sources])

    def read(source: Nvml | Drm) -> None:
        error = ""
        try:
            follow(source, run)
        except Exception as failure:  # noqa: BLE001 — whatever fails, the other source goes on
            error = f"{type(failure).__name__}: {failure}"
        run.write("ended", [source.label, error])
        running.remove(source)
        if not running:
            _end()

    for source in sources:
        _thread.start_new_thread(read, (source,))
    poller = select.poll()
    poller.register(output, 0)  # poll(2) reports POLLERR when the other end is closed
    poller.poll()
    _end()


LIBRARY = "libnvidia-ml.so.1"
FOR_TESTS = "NNCF_TOOLS_NVML"
"""The environment variable with the path of a library to load in place of NVIDIA's. Only tests set the variable."""
_SUCCESS = 0
_NOT_SUPPORTED = 3
_NO_PERMISSION = 4
_NO_FUNCTION = 13
_NOT_AVAILABLE = (1 << 64) - 1
"""NVML_VALUE_NOT_AVAILABLE: ``usedGpuMemory`` has this value if the driver does not know the memory."""
_FULL_LOAD = 100
_TEXT = 96
_MOST_ENTRIES = 4096
_MOST_DEVICES = 64
"""At most this many GPUs (or MIG instances of a GPU) are read, and at most ``_MOST_ENTRIES`` processes of each, even if
the driver reports more.
"""
_ENTRY = struct.Struct("IQ")
"""The first two fields of ``nvmlProcessInfo_t`` in each version: the PID and the bytes."""
_SIZES = (16, 24, 32)
"""The sizes of ``nvmlProcessInfo_t`` in bytes: version 1, version 2, and version 2 with ``usedGpuCcProtectedMemory``.
"""
_UNWRITTEN = b"\xa5"
"""This byte fills the buffer before a call. An entry written by the driver never ends with this byte."""
_CUDA_NODES = ("/dev/nvidia-uvm", "/dev/dxg")
"""The device files that a process opens for CUDA. A process that only uses NVML does not open ``nvidia-uvm``. The file
``dxg`` belongs to WSL, where NVML lists no processes.
"""
_FIRST_NAMESPACE = "pid:[4026531836]"
"""The name of the machine's first PID namespace, outside all containers (PROC_PID_INIT_INO, include/linux/proc_ns.h).
"""
NOT_TOLD = "the driver does not report the memory of a process (WSL, MIG and some containers)"
OF_HOST = "the driver reports PIDs of the host, and these are unknown in this container"
NOT_NAMED = "the driver lists no processes here (WSL and some containers)"


class _Memory(Structure):
    """``nvmlMemory_t``: sizes in bytes."""

    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


class Gpu:
    """A GPU, or a MIG instance."""

    def __init__(self, name: str, handle: c_void_p) -> None:
        self.name = name
        """A name such as ``nvidia0``, or ``nvidia0.mig1`` for a MIG instance."""
        self.handle = handle
        self.facts: dict[str, object] = {"device": name}


class Nvml:
    """Reads all GPUs of NVIDIA. Without persistence mode, ``begin`` can take seconds."""

    label = "NVIDIA's GPUs"
    every_s = 0.5
    share = 0.01
    clock = staticmethod(time.monotonic)
    """The clock for the cost of a reading: wall time, because a reading may wait for locks of the driver."""

    _library: Any = None
    _is_container = True

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._devices: list[Gpu] = []
        with suppress(OSError):
            self._is_container = os.readlink(f"{proc}/self/ns/pid") != _FIRST_NAMESPACE

    def read(self, run: WatchedRun) -> Mapping[str, float | None]:
        """Return the values by column: memory in bytes, and load in per cent."""
        values: dict[str, float | None] = {}
        # listed before the driver is asked: a process that ends in between has no device memory
        processes = run.processes()
        for device in self._devices:
            memory = _Memory()
            rates = (c_uint * 2)()  # nvmlUtilization_t: busy time of the GPU and of the GPU's memory, in per cent
            failure = self._call("nvmlDeviceGetMemoryInfo", device.handle, byref(memory))
            no_rates = self._call("nvmlDeviceGetUtilizationRates", device.handle, byref(rates))
            size, missing = self._sum_memory(device, processes, memory.total or _NOT_AVAILABLE)
            if failure not in {_SUCCESS, _NOT_SUPPORTED}:  # GB10 does not support this call, but lists processes
                size = None
                missing = f"the driver does not answer: {self._describe(failure)}"
            if missing and device.facts.get("missing") != missing:  # a reason is written only once
                device.facts["missing"] = missing
                run.write("device", device.facts)
            values[f"device_memory@{device.name}"] = size
            values[f"device_used@{device.name}"] = None if failure or memory.used > memory.total else memory.used
            values[f"device_busy@{device.name}"] = None if no_rates or rates[0] > _FULL_LOAD else rates[0]
        return values

    def begin(self, run: WatchedRun) -> bool:
        """Load the library, and find the devices. Return whether any device was found."""
        try:
            self._library = ctypes.CDLL(os.environ.get(FOR_TESTS) or LIBRARY)
        except OSError:
            return False
        count = c_uint()
        failure = self._call("nvmlInit_v2") or self._call("nvmlDeviceGetCount_v2", byref(count))
        if failure:
            run.write("warning", f"memory of {self.label} is unknown: {self._describe(failure)}")
            return False
        for number in range(min(count.value, _MOST_DEVICES)):
            handle = c_void_p()
            name = f"nvidia{number}"
            failure = self._call("nvmlDeviceGetHandleByIndex_v2", number, byref(handle))
            if failure == _SUCCESS:
                self._devices += list(self._find_instances(name, handle)) or [Gpu(name, handle)]
            elif failure != _NO_PERMISSION:  # this user, or this control group, cannot use the device either
                run.write("warning", f"memory of {name} is unknown: {self._describe(failure)}")
        for device in self._devices:
            memory = _Memory()
            device.facts["model"] = self._read_text("nvmlDeviceGetName", device)
            device.facts["uuid"] = self._read_text("nvmlDeviceGetUUID", device)
            self._call("nvmlDeviceGetMemoryInfo", device.handle, byref(memory))
            device.facts["memory"] = memory.total or None
            run.write("device", device.facts)
        return bool(self._devices)

    def _find_instances(self, name: str, handle: c_void_p) -> Iterator[Gpu]:
        """Yield the MIG instances of a GPU."""
        enabled = c_uint()
        count = c_uint()
        failure = self._call("nvmlDeviceGetMigMode", handle, byref(enabled), byref(c_uint()))
        if failure or not enabled.value:
            return
        self._call("nvmlDeviceGetMaxMigDeviceCount", handle, byref(count))
        for number in range(min(count.value, _MOST_DEVICES)):
            instance = c_void_p()
            if self._call("nvmlDeviceGetMigDeviceHandleByIndex", handle, number, byref(instance)) == _SUCCESS:
                yield Gpu(f"{name}.mig{number}", instance)

    def _sum_memory(self, device: Gpu, processes: Collection[Process], too_much: int) -> tuple[int | None, str]:
        """Return the device memory of the processes in bytes, and an empty text.

        If the memory is unknown, return None and the reason.
        """
        listed: dict[int, int | None] = {}
        for kind in ("Compute", "Graphics"):
            entries, failure = self._list_processes(f"nvmlDeviceGet{kind}RunningProcesses", device.handle)
            if failure and (kind == "Compute" or failure not in {_NOT_SUPPORTED, _NO_FUNCTION}):
                return None, f"{NOT_TOLD}: {self._describe(failure)}"
            for pid, size in entries:  # a process that computes and draws is in both lists
                earlier = listed.get(pid)
                listed[pid] = earlier if size >= too_much else max(size, earlier or 0)
        sizes = [listed[process.pid] for process in processes if process.pid in listed]
        is_host = self._is_container and not all(os.path.exists(f"{self._proc}/{pid}") for pid in listed)
        if self._is_container and (is_host or not sizes):
            users = {process.pid for process in processes if _uses_cuda(process.path)}
            if is_host and not users & listed.keys():  # on the host, another process may have a PID of the run
                return None, OF_HOST
            if users and not sizes:
                return None, NOT_NAMED
        if None in sizes:
            return None, NOT_TOLD
        return sum(size or 0 for size in sizes), ""

    def _list_processes(self, function: str, handle: c_void_p) -> tuple[Collection[tuple[int, int]], int]:
        """Return the PID and the bytes of each process that uses a device, and the status of the call.

        If the status is not 0, the list is empty. The number of bytes that the driver wrote shows the size of an entry:
        ``_v3`` should write 24 bytes an entry, but drivers since 535.43 write 32 (github.com/XuehaiPan/nvitop/pull/79,
        /issues/88), and driver 550.127 in a container writes 16 (/pull/226).
        """
        status = _NO_FUNCTION
        for version in ("_v3", "_v2", ""):
            count = c_uint(_MOST_ENTRIES)
            room = create_string_buffer(_UNWRITTEN * (_MOST_ENTRIES * _SIZES[-1]))
            status = self._call(function + version, handle, byref(count), room)
            if status == _SUCCESS:
                number = min(count.value, _MOST_ENTRIES)
                data = room.raw[:-1]
                written = len(data.rstrip(_UNWRITTEN))
                default = _SIZES[1 if version else 0]
                size = next((size for size in _SIZES if size * number >= written), default)
                return [_ENTRY.unpack_from(data, size * entry) for entry in range(number)], _SUCCESS
            if status != _NO_FUNCTION:
                break
        return (), status

    def _read_text(self, function: str, device: Gpu) -> str:
        text = create_string_buffer(_TEXT)
        self._call(function, device.handle, text, c_uint(_TEXT))
        return text.value.decode(errors="replace")

    def _describe(self, status: int) -> str:
        function = self._library.nvmlErrorString
        function.restype = c_char_p
        text: bytes = function(status) or b""
        return text.decode(errors="replace")

    def _call(self, function: str, *arguments: object) -> int:
        """Call a function of the library; return the status: ``_NO_FUNCTION`` if an older driver lacks the function."""
        try:
            status: int = getattr(self._library, function)(*arguments)
        except AttributeError:
            return _NO_FUNCTION
        return status


def _uses_cuda(folder: str) -> bool:
    """Return whether a process has opened a device for CUDA."""
    try:
        return any(os.readlink(f"{folder}/fd/{name}") in _CUDA_NODES for name in os.listdir(f"{folder}/fd"))
    except OSError:
        return False


_NODES = ("/dev/dri/", "/dev/accel/")
_UNITS = {b"": 1, b"KiB": 1 << 10, b"MiB": 1 << 20}
_KINDS = (b"memory", b"total", b"resident")
"""The kinds of sizes in the keys ``drm-KIND-REGION``. If a region has several sizes, the last kind in this list is
used. ``resident`` is the memory in use right now.
"""
_KEY = re.compile(rb"^drm-(memory|total|resident)-(\S+):\s*(\d+)[ \t]*(\w*)\s*$", re.MULTILINE)
_NO_MEMORY = (b"cycles-", b"gds", b"gws", b"oa", b"doorbell")
"""Regions with these names are left out. ``cycles-`` is from ``drm-total-cycles-ENGINE``, and the others are amdgpu's
regions on the chip.
"""
_CLIENT = re.compile(rb"^drm-client-id:\s*(\d+)", re.MULTILINE)
_DEVICE_REGIONS = (b"vram", b"local", b"stolen-local")
"""A region whose name begins with one of these words is memory on the device. Other regions are in system memory. The
driver amdgpu or xe says ``vram``, and i915 says ``local`` or ``stolen-local``.
"""
_LOOK_EVERY_S = 1.0
_READ_EVERY_S = 0.1
"""The processes are searched for descriptors every ``_LOOK_EVERY_S``, and known descriptors are read every
``_READ_EVERY_S``.
"""


def parse_regions(fdinfo: bytes) -> dict[bytes, int]:
    """Parse the fdinfo of a DRM client (an opened device file): return ``{memory region: bytes in use}``.

    For example: ``{b"vram0": 4096}``.
    """
    regions: dict[bytes, tuple[int, int]] = {}
    for kind, region, size, unit in _KEY.findall(fdinfo):
        if not region.startswith(_NO_MEMORY) and unit in _UNITS:
            entry = (_KINDS.index(kind), int(size) * _UNITS[unit])
            regions[region] = max(entry, regions.get(region, entry))
    return {region: size for region, (_, size) in regions.items()}


def find_devices(sys: str) -> dict[str, str]:
    """Return the devices by node, such as ``{"renderD128": "gpu0", "card0": "gpu0", "accel0": "npu0"}``.

    Devices of NVIDIA's driver are left out, because NVML reads these.
    """
    named: dict[str, str] = {}
    gpus: dict[str, str] = {}
    folder = f"{sys}/class/drm"
    for node in _list_nodes(folder, r"renderD\d+") + _list_nodes(folder, r"card\d+"):
        folder = os.path.realpath(f"{sys}/class/drm/{node}/device")
        driver = os.path.basename(os.path.realpath(f"{folder}/driver"))
        if folder in gpus or (node[0] == "r" and not driver.startswith("nvidia")):
            named[node] = gpus.setdefault(folder, f"gpu{len(gpus)}")
    for node in _list_nodes(f"{sys}/class/accel", r"accel\d+"):
        named[node] = node.replace("accel", "npu")
    return named


def _list_nodes(folder: str, pattern: str) -> list[str]:
    """Return the names in a folder that match, sorted by number: ``renderD99``, ``renderD128``."""
    try:
        nodes = filter(re.compile(pattern).fullmatch, os.listdir(folder))
    except OSError:
        return []
    return sorted(nodes, key=lambda node: (len(node), node))


class Drm:
    """Reads GPUs and NPUs that NVML does not support.

    The class reads the device memory of the run, from the DRM clients (opened device files) of all processes. For an
    NPU, the class also reads the memory and the load of all users together.
    """

    label = "GPUs and NPUs of Intel, AMD and others"
    clock = staticmethod(time.thread_time)
    share = 0.005
    """Readings take at most this share of the time, and searches for descriptors take at most this share, too. A search
    costs much more than a reading.
    """

    _look_at_s = 0.0
    _look_again_at_s = 0.0
    _npus_at_s = 0.0
    _has_warned = False

    def __init__(self, sys: str = "/sys") -> None:
        self.every_s = _LOOK_EVERY_S
        self._devices = find_devices(sys)
        self._npus = {name: f"{sys}/class/accel/{node}/device" for node, name in self._devices.items() if "npu" in name}
        self._clients: dict[Client, str] = {}
        """Maps a DRM client (an opened device file) to the path of an fdinfo file that shows the client's memory."""
        self._seen: set[str] = set()
        """The columns that have had a value so far. If all processes have closed the device, the value is 0."""
        self._unreported: dict[str, None] = {}
        """The memory columns of devices whose driver does not report the memory of a process. Each value is None
        (unknown).
        """
        self._busy: dict[str, tuple[int, int]] = {}

    def begin(self, _: WatchedRun) -> bool:
        """Return whether there is any device."""
        return bool(self._devices)

    def read(self, run: WatchedRun) -> Mapping[str, float | None]:
        """Return the values by column: memory in bytes, and load in per cent."""
        now_s = time.monotonic()
        values: dict[str, float | None] = dict.fromkeys(self._seen, 0)
        clients = None if now_s >= self._look_at_s else self._read_again()
        if clients is None:
            if now_s < self._look_again_at_s:
                return dict.fromkeys(self._seen)
            begun_s = self.clock()
            clients = self._find_clients(run)
            self._look_again_at_s = now_s + (self.clock() - begun_s) / self.share
            self._look_at_s = max(now_s + _LOOK_EVERY_S, self._look_again_at_s)
            self.every_s = _READ_EVERY_S if clients else _LOOK_EVERY_S
        for (device, _), fdinfo in clients.items():
            for region, size in parse_regions(fdinfo).items():
                column = f"device_memory@{device}"
                if not region.startswith(_DEVICE_REGIONS):
                    column += ".system"
                values[column] = (values.get(column) or 0) + size
        self._seen |= values.keys()
        values.update(self._unreported)
        if now_s >= self._npus_at_s:
            self._npus_at_s = now_s + _LOOK_EVERY_S / 2
            values.update(self._read_npus())
        return values

    def _read_again(self) -> dict[Client, bytes] | None:
        """Return ``{client: content of fdinfo}`` for each known DRM client (an opened device file).

        Return None if any descriptor was closed, or now belongs to another client.
        """
        contents = {}
        for client, path in self._clients.items():
            data = read_small_file(path)
            number = _CLIENT.search(data)
            if number is None or number[1] != client[1]:
                return None
            contents[client] = data
        return contents

    def _find_clients(self, run: WatchedRun) -> dict[Client, bytes]:
        self._clients = {}
        contents: dict[Client, bytes] = {}
        for process in run.processes():
            try:
                names = os.listdir(f"{process.path}/fd")
            except OSError as error:
                if isinstance(error, PermissionError) and not self._has_warned:
                    self._has_warned = True
                    run.write("warning", "GPU and NPU memory of other users' processes is unknown")
                continue
            for name in names:
                with suppress(OSError):
                    link = f"{process.path}/fd/{name}"
                    node = os.readlink(link)
                    device = self._devices.get(node.rpartition("/")[2])
                    if device is None or not node.startswith(_NODES):
                        continue
                    path = f"{process.path}/fdinfo/{name}"
                    data = read_small_file(path)
                    if number := _CLIENT.search(data):
                        self._clients[device, number[1]] = path
                        contents[device, number[1]] = data
                    if not parse_regions(data) and os.readlink(link) == node:
                        self._note_unreported(device, run)
        return contents

    def _note_unreported(self, device: str, run: WatchedRun) -> None:
        """Warn once for each device whose driver does not report the memory of a process.

        Old drivers do not report the memory, and some drivers have no fdinfo.
        """
        column = f"device_memory@{device}"
        if self._seen.isdisjoint((column, f"{column}.system")) and column not in self._unreported:
            self._unreported[column] = None
            run.write("warning", f"memory of {device} is unknown: the driver does not report the memory of a process")

    def _read_npus(self) -> dict[str, float]:
        """Return the memory of all users of each NPU in bytes, and the busy time since the last call in per cent."""
        values: dict[str, float] = {}
        for name, folder in self._npus.items():
            used = read_number(f"{folder}/npu_memory_utilization")
            if used is not None:
                values[f"device_used@{name}"] = used
            busy_us = read_number(f"{folder}/npu_busy_time_us")
            if busy_us is None:
                continue
            now_us = time.monotonic_ns() // 1000
            last_us, last_busy_us = self._busy.get(name, (now_us, busy_us))
            self._busy[name] = now_us, busy_us
            if now_us > last_us and busy_us >= last_busy_us:  # the driver may have reset the counter
                percent = 100 * (busy_us - last_busy_us) / (now_us - last_us)
                values[f"device_busy@{name}"] = round(min(100.0, percent), 1)
        return values
