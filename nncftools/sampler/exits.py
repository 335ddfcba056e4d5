"""The kernel's exit accounting (taskstats): the exact high-water mark and CPU time of every process that ends.

Over generic netlink the kernel sends a ``struct taskstats`` for each exiting thread of every process on the machine
(Documentation/accounting/taskstats.rst, include/uapi/linux/taskstats.h). This requires CAP_NET_ADMIN in the first
user and PID namespace: root, outside of containers.

The part of generic netlink that a subscription needs (include/uapi/linux/netlink.h, genetlink.h).

The ``socket`` module would cost 1 MiB of resident memory; ``_socket``, its core, costs next to nothing.
"""

from __future__ import annotations

import _socket
import errno
import os
import struct

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterator


HEADERS = 20
"""Bytes of struct nlmsghdr and struct genlmsghdr, with which every message begins."""
_GENERIC_NETLINK = 16
_CONTROLLER, _GET_FAMILY, _FAMILY_ID, _FAMILY_NAME = 16, 3, 1, 2
_REQUEST, _ACKNOWLEDGE = 1, 4
_ERROR = 2
_SO_RCVBUFFORCE = 33
_LONGEST = 4096


class Netlink:
    """A socket of one generic netlink family."""

    def __init__(self, family: str, buffer_bytes: int) -> None:
        """Find the family; the kernel buffers up to ``buffer_bytes`` of messages. Raises OSError."""
        self._socket = _socket.socket(_socket.AF_NETLINK, _socket.SOCK_RAW | _socket.SOCK_CLOEXEC, _GENERIC_NETLINK)
        try:
            self._socket.bind((0, 0))
            self._socket.setsockopt(_socket.SOL_SOCKET, _SO_RCVBUFFORCE, buffer_bytes)
            answer = self._ask(_CONTROLLER, _GET_FAMILY, _FAMILY_NAME, family.encode() + b"\0")
            found = dict(attributes(answer, HEADERS))
            self._family = int.from_bytes(found[_FAMILY_ID][:2], "little")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def ask(self, command: int, attribute: int, value: bytes) -> None:
        """Send a command with one attribute to the family and wait for the answer. Raises OSError."""
        self._ask(self._family, command, attribute, value)

    def _ask(self, family: int, command: int, attribute: int, value: bytes) -> bytes:
        padded = value + b"\0" * (-len(value) % 4)
        body = struct.pack("=BBHHH", command, 1, 0, 4 + len(value), attribute) + padded
        self._socket.send(struct.pack("=IHHII", 16 + len(body), family, _REQUEST | _ACKNOWLEDGE, 0, 0) + body)
        answer = b""
        while True:
            data = self._socket.recv(_LONGEST)
            if struct.unpack_from("=H", data, 4)[0] != _ERROR:
                answer = data
                continue
            (code,) = struct.unpack_from("=i", data, 16)
            if code:
                raise OSError(-code, os.strerror(-code))
            return answer

    def received(self) -> Iterator[bytes]:
        """Yield the waiting messages. Raises OSError with ENOBUFS when some were lost."""
        while True:
            try:
                yield self._socket.recv(_LONGEST, _socket.MSG_DONTWAIT)
            except BlockingIOError:
                return


def attributes(data: bytes, place: int) -> Iterator[tuple[int, bytes]]:
    """Yield the kind and value of each attribute from offset ``place`` on."""
    while place + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, place)
        if length < 4:  # noqa: PLR2004 — the attribute's own header
            raise OSError(errno.EBADMSG, "a netlink attribute without length")
        yield kind, data[place + 4 : place + length]
        place += (length + 3) & ~3


_GET = 1
_REGISTER_CPUMASK = 3
_AGGREGATE_OF_TASK, _STATISTICS = 4, 3
_FORKED, _LAST_OF_GROUP = 0x01, 0x20
_OLDEST, _BROKEN = 12, 15
"""Version 12 (Linux 5.17) added thread groups; 15 (6.14, 6.15) has new fields in the middle, which 16 removed again."""
_TASK = struct.Struct("=H2xIB63xQ32s16xII16xQQQQ16xQ")
_GROUP = struct.Struct("=I4xQ")
_GROUP_AT = 368
_BUFFER = 8 << 20
"""About 6,000 messages; the buffer is the kernel's memory, not ours."""


class Exit:
    """A process that has ended, as the kernel accounted it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.parent_pid = 0
        self.name = ""
        self.wait_status = 0
        self.forked_copy = False
        self.cpu_s = 0.0
        self.elapsed_s = 0.0
        self.after_s = 0.0
        self.at_s = 0.0
        """It ended after the first and before the second of these times of the recording."""
        self.high_water_mark = 0
        self.faults = 0
        """Page faults of all its threads."""


class Exits:
    """A subscription to the kernel's messages about ended processes."""

    def __init__(self) -> None:
        """Subscribe. Raises OSError with the reason when that is impossible."""
        self.complete = True
        """Whether all messages so far were received and understood."""
        self._groups: dict[int, Exit] = {}
        with open("/sys/devices/system/cpu/possible", "rb") as file:
            cpus = file.read().strip() + b"\0"
        self._netlink = Netlink("TASKSTATS", _BUFFER)
        try:
            self._netlink.ask(_GET, _REGISTER_CPUMASK, cpus)
        except BaseException:
            self._netlink.close()
            raise

    def read(self) -> list[Exit]:
        """Return the processes whose last thread has exited since the last call."""
        ended = []
        try:
            for message in self._netlink.received():
                process = self._take(message)
                if process is not None:
                    ended.append(process)
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            self.complete = False
            self._groups.clear()
        return ended

    def _take(self, message: bytes) -> Exit | None:
        """Add a thread's figures to its process; return the process if this was its last thread."""
        task = _statistics(message)
        if task is None:
            return None
        version, status, flags, run_ns, name, pid, parent_pid, user_us, system_us, *faults, mark_kib = (
            _TASK.unpack_from(task)
        )
        if version < _OLDEST or version == _BROKEN:
            self.complete = False
            return None
        group, elapsed_us = _GROUP.unpack_from(task, _GROUP_AT)
        process = self._groups.setdefault(group, Exit(group))
        # User and system times are whole ticks, charged to what each tick found running: on a busy machine they are off
        # by a fifth. Kernels without CONFIG_TASK_DELAY_ACCT have nothing better.
        process.cpu_s += run_ns / 1e9 or (user_us + system_us) / 1e6
        process.faults += sum(faults)
        process.high_water_mark = max(process.high_water_mark, mark_kib * 1024)
        process.wait_status = status  # the last thread's status is the one that the parent gets
        if pid == group:
            process.forked_copy = bool(flags & _FORKED)
            process.name = name.partition(b"\0")[0].decode(errors="backslashreplace")
        if not flags & _LAST_OF_GROUP:
            return None
        process.parent_pid = parent_pid
        process.elapsed_s = elapsed_us / 1e6
        return self._groups.pop(group)


def _statistics(message: bytes) -> bytes | None:
    """Return the ``struct taskstats`` of a thread; None for the summary of a thread group."""
    for kind, value in attributes(message, HEADERS):
        if kind == _AGGREGATE_OF_TASK:
            return dict(attributes(value, 0)).get(_STATISTICS)
    return None
