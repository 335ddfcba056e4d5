"""GPUs and NPUs of Intel, AMD and others, by what the kernel says of the descriptors of a process.

``/proc/PID/fdinfo/N`` of a descriptor on ``/dev/dri`` or ``/dev/accel`` has lines ``drm-KEY: VALUE [UNIT]``
(Documentation/gpu/drm-usage-stats.rst). Descriptors with the same ``drm-client-id`` are one client, also in forked
processes: each says all that the client holds. Memory of the device and of the system are kept apart: what is in the
system's memory may be part of RSS, too.

Intel's NPU also says what all its users hold, and how long it worked (Documentation/ABI/testing/sysfs-driver-ivpu…;
drivers/accel/ivpu/ivpu_sysfs.c): ``npu_memory_utilization`` in bytes and ``npu_busy_time_us``.
"""

from __future__ import annotations

import contextlib
import os
import re
import time

from nncftools.sampler.tree import content_of, number_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from nncftools.sampler.devices.helper import Run

    Client = tuple[str, bytes]
    """The device and the number of a client of it."""

_NODES = ("/dev/dri/", "/dev/accel/")
_UNITS = {b"": 1, b"KiB": 1 << 10, b"MiB": 1 << 20}
_KINDS = (b"memory", b"total", b"resident")
"""Of keys for the memory of a region: what is in memory right now is last, and counts if it is there."""
_KEY = re.compile(rb"^drm-(memory|total|resident)-(\S+):\s*(\d+)[ \t]*(\w*)\s*$", re.MULTILINE)
_NO_MEMORY = (b"cycles-", b"gds", b"gws", b"oa", b"doorbell")
"""``drm-total-cycles-ENGINE``, and what amdgpu has on its chip."""
_CLIENT = re.compile(rb"^drm-client-id:\s*(\d+)", re.MULTILINE)
_OF_DEVICE = (b"vram", b"local", b"stolen-local")
"""Names of regions in the memory of the device: of amdgpu and xe, and of i915."""
_LOOK_EVERY_S, _OFTEN_S = 1.0, 0.1
"""The distance of looks for descriptors, and of readings while there are any."""


def regions(fdinfo: bytes) -> dict[bytes, int]:
    """Return the bytes of a client in each region of memory."""
    found: dict[bytes, tuple[int, int]] = {}
    for kind, region, size, unit in _KEY.findall(fdinfo):
        if not region.startswith(_NO_MEMORY) and unit in _UNITS:
            found[region] = max(found.get(region, (-1, 0)), (_KINDS.index(kind), int(size) * _UNITS[unit]))
    return {region: size for region, (_, size) in found.items()}


def devices(sys: str) -> dict[str, str]:
    """Return the devices, ``gpu0`` and ``npu0``, by their nodes: ``renderD128``, ``card0``, ``accel0``.

    NVIDIA's driver is asked by NVML.
    """
    named: dict[str, str] = {}
    gpus: dict[str, str] = {}
    nodes = filter(re.compile(r"(renderD|card)\d+").fullmatch, _listed(f"{sys}/class/drm"))
    for node in sorted(nodes, key=lambda node: (node[0] == "c", len(node), node)):  # renderD99, renderD128, card0
        folder = os.path.realpath(f"{sys}/class/drm/{node}/device")
        driver = os.path.basename(os.path.realpath(f"{folder}/driver"))
        if folder in gpus or (node[0] == "r" and not driver.startswith("nvidia")):
            named[node] = gpus.setdefault(folder, f"gpu{len(gpus)}")
    for node in filter(re.compile(r"accel\d+").fullmatch, _listed(f"{sys}/class/accel")):
        named[node] = node.replace("accel", "npu")
    return named


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


class Drm:
    """Reads the clients of all devices, and NPUs as a whole."""

    what = "GPUs and NPUs of Intel, AMD and others"
    clock = staticmethod(time.thread_time)
    share = 0.005
    """Looks for descriptors take as much again at most: they are much more than most readings, and counted apart."""

    def __init__(self, sys: str = "/sys") -> None:
        self.every_s = _LOOK_EVERY_S
        self._devices = devices(sys)
        self._npus = {name: f"{sys}/class/accel/{node}/device" for node, name in self._devices.items() if "npu" in name}
        self._clients: dict[Client, str] = {}
        """By client, the fdinfo of one of its descriptors."""
        self._seen: set[str] = set()
        """The columns so far: those of a client that is gone are 0."""
        self._untold: dict[str, None] = {}
        """Columns of devices whose driver does not tell what a process holds."""
        self._look_at_s = self._look_again_at_s = self._npus_at_s = 0.0
        self._busy: dict[str, tuple[int, int]] = {}
        self._has_warned = False

    def begin(self, _: Run) -> bool:
        """Return whether there is a device."""
        return bool(self._devices)

    def read(self, run: Run) -> Mapping[str, float | None]:
        """Return bytes and per cent by column."""
        now_s = time.monotonic()
        values = dict.fromkeys(self._seen, 0)
        held = None if now_s >= self._look_at_s else self._read_again()
        if held is None and now_s < self._look_again_at_s:
            return dict.fromkeys(self._seen)
        if held is None:
            begun_s = self.clock()
            held = self._look(run)
            self._look_again_at_s = now_s + (self.clock() - begun_s) / self.share
            self._look_at_s = max(now_s + _LOOK_EVERY_S, self._look_again_at_s)
            self.every_s = _OFTEN_S if held else _LOOK_EVERY_S
        for (device, _), fdinfo in held.items():
            for region, size in regions(fdinfo).items():
                column = f"device_memory@{device}" + ("" if region.startswith(_OF_DEVICE) else ".system")
                values[column] = values.get(column, 0) + size
        self._seen |= values.keys()
        if now_s < self._npus_at_s:
            return {**values, **self._untold}
        self._npus_at_s = now_s + _LOOK_EVERY_S / 2
        return {**values, **self._untold, **dict(self._of_npus())}

    def _read_again(self) -> dict[Client, bytes] | None:
        """Return what each known client says; None if one of their descriptors is another one's by now."""
        held = {}
        for client, path in self._clients.items():
            data = content_of(path)
            number = _CLIENT.search(data)
            if number is None or number[1] != client[1]:
                return None
            held[client] = data
        return held

    def _look(self, run: Run) -> dict[Client, bytes]:
        """Find all clients, and return what they say."""
        self._clients, held = {}, {}
        for process in run.processes():
            try:
                names = os.listdir(f"{process.path}/fd")
            except OSError as error:
                if isinstance(error, PermissionError) and not self._has_warned:
                    self._has_warned = True
                    run.write("warning", "what processes of other users hold of GPUs and NPUs is unknown")
                continue
            for name in names:
                with contextlib.suppress(OSError):
                    node = os.readlink(f"{process.path}/fd/{name}")
                    device = self._devices.get(node.rpartition("/")[2]) if node.startswith(_NODES) else None
                    if device is None:
                        continue
                    path = f"{process.path}/fdinfo/{name}"
                    data = content_of(path)
                    if number := _CLIENT.search(data):
                        self._clients[device, number[1]] = path
                        held[device, number[1]] = data
                    if not regions(data) and os.readlink(f"{process.path}/fd/{name}") == node:
                        self._miss(device, run)
        return held

    def _miss(self, device: str, run: Run) -> None:
        """Say that the driver of a device does not tell what a process holds: old ones, and some without fdinfo."""
        column = f"device_memory@{device}"
        if self._seen.isdisjoint((column, f"{column}.system")) and column not in self._untold:
            self._untold[column] = None
            run.write("warning", f"memory of {device} is unknown: its driver does not tell what a process holds")

    def _of_npus(self) -> Iterator[tuple[str, float | None]]:
        """Yield what all users of NPUs hold, and how busy these were since the last call."""
        for name, folder in self._npus.items():
            used, busy = (number_in(f"{folder}/npu_{fact}") for fact in ("memory_utilization", "busy_time_us"))
            if used is not None:
                yield f"device_used@{name}", used
            if busy is not None:
                now_us = time.monotonic_ns() // 1000
                before_us, busy_before = self._busy.get(name, (now_us, busy))
                self._busy[name] = now_us, busy
                if now_us > before_us and busy >= busy_before:  # a counter may start again
                    yield f"device_busy@{name}", round(min(100.0, 100 * (busy - busy_before) / (now_us - before_us)), 1)
