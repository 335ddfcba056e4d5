"""The journal's records of single processes: who they are, how much memory they held, how they ended.

The kernel's exit accounting (taskstats) has the exact high-water mark and CPU time of every process that ends. Over
generic netlink it sends a ``struct taskstats`` for each exiting thread of every process on the machine
(Documentation/accounting/taskstats.rst, include/uapi/linux/taskstats.h, netlink.h, genetlink.h). This requires
CAP_NET_ADMIN in the first user and PID namespace: root, outside of containers. The ``socket`` module would cost 1 MiB
of resident memory; ``_socket``, its core, costs next to nothing.
"""

from __future__ import annotations

import _socket
import contextlib
import errno
import os
import struct
import time

from nncftools.journal.writing import span
from nncftools.sampler.target import exit_status
from nncftools.sampler.tree import DETACHED_NAME, PAGE, TICKS_PER_S, Exit, value_of

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from nncftools.journal.reading import ExitStatus
    from nncftools.sampler.high_water_marks import HighWaterMarks
    from nncftools.sampler.tree import Process, Tree, WriteLine


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
            known = dict(attributes(answer, HEADERS))
            self._family = int.from_bytes(known[_FAMILY_ID][:2], "little")
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


def attributes(data: bytes, offset: int) -> Iterator[tuple[int, bytes]]:
    """Yield the kind and value of each attribute from offset ``place`` on."""
    while offset + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, offset)
        if length < 4:  # noqa: PLR2004 — the attribute's own header
            raise OSError(errno.EBADMSG, "a netlink attribute without length")
        yield kind, data[offset + 4 : offset + length]
        offset += (length + 3) & ~3


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
    for kind, value in attributes(message, HEADERS):
        if kind == _AGGREGATE_OF_TASK:
            return dict(attributes(value, 0)).get(_STATISTICS)
    return None


USER, ROOT, CLOCK = "user", "root", "clock"


def log_barriers(process: Process) -> list[str]:
    """Return which of these differ from our own; what the kernel does not tell is left out."""
    barriers = {
        USER: process.read_user() not in {None, 0, os.geteuid()},
        ROOT: process.differs("root", "/"),
        CLOCK: process.differs("ns/time", "/proc/self/ns/time"),
    }
    return [barrier for barrier, differs in barriers.items() if differs]


_PARENTLESS_MOST = 4096
"""Ended processes of unknown parents that are kept, because the parent may turn out to belong to the tree."""
_LISTED_MOST = 100_000
"""Above this number, processes that ended unseen are only counted, unless they are larger than all before."""
_ENDING_S = 1.0
"""A process may still be found this long after the kernel's message about its end: it first frees its memory."""


class ProcessRecords:
    """Writes the records of a tree's processes, including those that ended before any scan found them."""

    def __init__(
        self, tree: Tree, write_line: WriteLine, marks: HighWaterMarks, *, reaper: int | None, accounting: bool
    ) -> None:
        """Record ``tree`` and orphans, which become children of ``reaper``; ``accounting``: the kernel reports ends."""
        self._marks = marks
        self._accounting = accounting
        self._tree = tree
        self._write_line = write_line
        self._reaper = reaper
        self._boot_at_start_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        self._barriers: dict[int, list[str]] = {}
        """By process: what kept it from the marks log at some moment."""
        self._parentless: dict[int, list[Exit]] = {}
        self._kept = self._unlisted = self._largest_unlisted = 0
        self._just_ended: dict[int, float] = {}
        self.accounted_s = 0.0
        """Until when the ends of processes are known."""

    def add(self, process: Process, now_s: float) -> None:
        """Record a process that was found, and its children that had ended before.

        A process whose end was already recorded is a zombie or about to become one: it gets no new record, and stays in
        the tree for its CPU time only.
        """
        if process.pid in self._just_ended or (process.was_zombie and self._accounting):
            return
        process.introduced = True
        start_s = self._start_s(process)
        if -1 / TICKS_PER_S <= start_s < 0:
            start_s = 0.0
        if start_s < 0:
            with contextlib.suppress(OSError):  # it has ended meanwhile
                process.earlier_mark = process.mark.size = value_of(process.read("status"), b"\nVmHWM:") or 0
                process.earlier_ticks = sum(map(int, process.read("stat").rpartition(b")")[2].split()[11:13]))
        process.mark.sampled_s = max(0.0, start_s)
        parent = process.parent.number if process.parent is not None else None
        born = {"pid": process.pid, "parent": parent, "start_s": round(start_s, 6)}
        self._write_line("process", {**self._identity(process), **born})
        self._adopt(process.pid, (process.number, start_s), now_s)

    def _start_s(self, process: Process) -> float:
        """Return when a process started, in seconds since the start of the recording; never too late.

        The kernel rounds down to a tick.
        """
        return process.started_ticks / TICKS_PER_S - self._boot_at_start_s

    def discard(self, process: Process) -> None:
        """Take back the record of a process that turned out to be the sampler of a program that records itself."""
        self._tree.remove(process)
        self._write_line("process", {"id": process.number, "left_out": True})

    def update_identity(self, process: Process, *, at_end: bool = False) -> None:
        """Read the name again: before its exec, a process has its parent's.

        What keeps it from the marks log is looked for once for each program, and at the end: that takes 25 µs.
        """
        if not (process.alive and process.introduced):
            return
        has_changed = process.identify()
        if has_changed or at_end or process.number not in self._barriers:
            known = self._barriers.setdefault(process.number, [])
            new = [barrier for barrier in log_barriers(process) if barrier not in known]
            known += new
            has_changed |= bool(new)
        if has_changed:
            self._write_line("process", self._identity(process))

    def _identity(self, process: Process) -> dict[str, object]:
        facts = {"name": process.name, "command": process.command, "forked_copy": process.forked_copy}
        barriers = self._barriers.get(process.number)
        return {"id": process.number, **facts, **({"apart": barriers} if barriers else {})}

    def note_exec(self, process: Process, from_s: float, to_s: float) -> None:
        """Record that a process began to run another program between two moments, if it did.

        Its code and its stack are at other addresses then. While it ends, and during exec, it has none: the code is at
        0. While the kernel hides them from us (ptrace(2)), as after seteuid(2), the code is at 1.
        """
        if process.hidden_from_s is not None:
            from_s = process.hidden_from_s
        process.hidden_from_s = from_s if process.image[0] == b"1" else None
        if process.image[0] in {b"0", b"1"}:
            return
        if process.image != process.known_image:
            if process.known_image and process.introduced:
                self._write_line("exec", {"id": process.number, **span(from_s, to_s)})
            process.known_image = process.image

    def update_high_water_mark(self, process: Process) -> None:
        """Record the high-water mark of a running process if it rose."""
        if process.high_water_mark != process.mark.written:
            process.mark.written = process.high_water_mark
            self.write_figures(process)

    def add_exits(self, exits: Iterable[Exit], now_s: float) -> None:
        """Record the processes that ended, as the kernel reports them."""
        while self._just_ended and now_s - next(iter(self._just_ended.values())) > _ENDING_S:
            del self._just_ended[next(iter(self._just_ended))]
        for ended in exits:
            ended.after_s, ended.at_s = self.accounted_s, now_s
            if ended.name == DETACHED_NAME:
                continue
            process = self._tree.get(ended.pid)
            parent = self._tree.get(ended.parent_pid)
            if process is not None and process.introduced:
                process.exit = ended
                self._marks.ended(process, ended)
            elif not self._tree.children:
                continue
            elif process is not None or parent is not None or ended.parent_pid == self._reaper:
                number = None if process is None else process.number
                above = None if parent is None else (parent.number, self._start_s(parent))
                self._write_unseen(ended, above, now_s, number)
            else:
                self._keep(ended)
        self.accounted_s = now_s

    def _keep(self, ended: Exit) -> None:
        self._parentless.setdefault(ended.parent_pid, []).append(ended)
        self._kept += 1
        while self._kept > _PARENTLESS_MOST:
            self._kept -= len(self._parentless.pop(next(iter(self._parentless))))

    def _adopt(self, pid: int, above: tuple[int, float], now_s: float) -> None:
        children = self._parentless.pop(pid, ())
        self._kept -= len(children)
        for ended in children:
            self._write_unseen(ended, above, now_s)

    def _write_unseen(
        self, ended: Exit, above: tuple[int, float] | None, now_s: float, number: int | None = None
    ) -> None:
        """Record a process that no sample shows; ``above``: its parent's number and start, in seconds."""
        self._just_ended[ended.pid] = now_s
        if self._tree.count >= _LISTED_MOST and ended.high_water_mark <= self._largest_unlisted:
            self._unlisted += 1
            return
        self._largest_unlisted = max(self._largest_unlisted, ended.high_water_mark)
        if number is None:
            number = self._tree.count
            self._tree.count += 1
        parent, after_s = (None, 0.0) if above is None else above
        facts = {"id": number, "pid": ended.pid, "parent": parent, "name": ended.name, "forked_copy": ended.forked_copy}
        # It ended after the messages had been read last, and began after its parent.
        earliest_s = max(0.0, after_s, ended.after_s - ended.elapsed_s)
        times = {"start_s": round(earliest_s, 6), "end_s": round(now_s, 6)}
        self._write_line("process", {**facts, **times, **_accounted(ended)})
        self._marks.ended_unseen(number, ended.high_water_mark, (earliest_s, now_s))
        self._adopt(ended.pid, (number, earliest_s), now_s)

    def write_end(self, process: Process, now_s: float, status: ExitStatus | None, limit: int | None) -> None:
        """Record the end of a process; ``limit`` is the ``ru_maxrss`` that came with its status, in bytes."""
        if not process.introduced:
            return
        figures = {**_figures(process), "end_s": round(now_s, 6), "exit": status}
        if limit is not None:
            figures["high_water_limit"] = limit
        if process.exit is not None:
            figures.update(_accounted(process.exit, process.earlier_mark, process.earlier_ticks))
            if (process.high_water_mark or 0) > process.exit.high_water_mark:  # of the program before its last exec
                figures["high_water_mark"] = process.high_water_mark
            figures["end_s"] = round(process.exit.at_s, 6)  # it may have been a zombie for long
        self._write_line("process", figures)

    def write_figures(self, process: Process) -> None:
        """Record the figures of a process so far."""
        if process.introduced:
            self._write_line("process", _figures(process))

    def close(self) -> None:
        """Warn about the processes that are not listed."""
        if self._unlisted:
            self._write_line("warning", f"{self._unlisted:,} more processes, all small and short-lived, are not listed")


def _figures(process: Process) -> dict[str, object]:
    return {
        "id": process.number,
        "counted_s": None if process.counted_s is None else round(process.counted_s, 6),
        "first_rss": process.first_rss * PAGE or None,
        "samples": process.samples,
        "peak_rss": process.peak_rss * PAGE if process.samples else None,
        "peak_s": None if process.mark.peak_s is None else round(process.mark.peak_s, 6),
        "high_water_mark": process.high_water_mark,
        "high_water_limit": process.earlier_mark or None,
        "cpu_s": max(0, process.cpu_ticks - process.earlier_ticks) / TICKS_PER_S,
    }


def _accounted(ended: Exit, earlier_mark: int = 0, earlier_ticks: int = 0) -> dict[str, object]:
    return {
        "high_water_mark": ended.high_water_mark if ended.high_water_mark > earlier_mark else None,
        "accounted": True,
        "cpu_s": round(max(0.0, ended.cpu_s - earlier_ticks / TICKS_PER_S), 6),
        "exit": exit_status(ended.wait_status),
    }
