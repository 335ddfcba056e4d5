"""Messages of the kernel's exit accounting, made by hand."""

from __future__ import annotations

import ctypes
import struct

from tests.sampler.fake_netlink import FAMILY, attribute

FORKED, KILLED, LAST = 0x01, 0x10, 0x20
"""AFORK, AXSIG and AGROUP of include/uapi/linux/acct.h."""
_NEW = 2
_PID, _TGID, _STATS, _OF_PID, _OF_TGID, _NULL = range(1, 7)


class Statistics(ctypes.Structure):
    """``struct taskstats`` of version 13 (include/uapi/linux/taskstats.h), up to its last field that matters."""

    _fields_ = (
        ("version", ctypes.c_uint16),
        ("ac_exitcode", ctypes.c_uint32),
        ("ac_flag", ctypes.c_uint8),
        ("ac_nice", ctypes.c_uint8),
        ("delays", ctypes.c_uint64 * 7),  # cpu, blkio, swapin, cpu_run_real_total
        ("cpu_run_virtual_total", ctypes.c_uint64),
        ("ac_comm", ctypes.c_char * 32),
        ("ac_sched", ctypes.c_uint64),  # __u8, but the next field is aligned to 8
        ("ac_uid", ctypes.c_uint32),
        ("ac_gid", ctypes.c_uint32),
        ("ac_pid", ctypes.c_uint32),
        ("ac_ppid", ctypes.c_uint32),
        ("ac_btime", ctypes.c_uint32),
        ("ac_etime", ctypes.c_uint64),
        ("ac_utime", ctypes.c_uint64),
        ("ac_stime", ctypes.c_uint64),
        ("ac_minflt", ctypes.c_uint64),
        ("ac_majflt", ctypes.c_uint64),
        ("coremem", ctypes.c_uint64),
        ("virtmem", ctypes.c_uint64),
        ("hiwater_rss", ctypes.c_uint64),
        ("hiwater_vm", ctypes.c_uint64),
        ("io", ctypes.c_uint64 * 7),  # read_char to cancelled_write_bytes
        ("switches", ctypes.c_uint64 * 2),
        ("scaled", ctypes.c_uint64 * 3),
        ("more_delays", ctypes.c_uint64 * 4),  # freepages, thrashing
        ("ac_btime64", ctypes.c_uint64),
        ("compact", ctypes.c_uint64 * 2),
        ("ac_tgid", ctypes.c_uint32),
        ("ac_tgetime", ctypes.c_uint64),
        ("ac_exe_dev", ctypes.c_uint64),
        ("ac_exe_inode", ctypes.c_uint64),
        ("wpcopy", ctypes.c_uint64 * 2),
    )


def thread(  # noqa: PLR0913 — one parameter per figure
    pid: int,
    *,
    group: int | None = None,
    parent: int = 1,
    status: int = 0,
    flags: int = LAST,
    name: bytes = b"name",
    run_ns: int = 0,
    user_us: int = 0,
    system_us: int = 0,
    elapsed_us: int = 0,
    mark_kib: int = 0,
    version: int = 13,
) -> bytes:
    """Return the message of a thread that has ended: by default the only one of its process."""
    group = pid if group is None else group
    of = Statistics(
        version=version,
        ac_exitcode=status,
        ac_flag=flags,
        cpu_run_virtual_total=run_ns,
        ac_comm=name,
        ac_pid=pid,
        ac_ppid=parent,
        ac_etime=elapsed_us,
        ac_utime=user_us,
        ac_stime=system_us,
        hiwater_rss=mark_kib,
        hiwater_vm=2**40,
        ac_tgid=group,
        ac_tgetime=elapsed_us,
    )
    return message(_of_thread(pid, bytes(of)))


def last_thread_with_sum(pid: int, group: int, **figures: int) -> bytes:
    """Return the message of the last of several threads, in which the kernel adds up the group's."""
    summed = Statistics(version=13, ac_tgid=group, ac_pid=group, hiwater_rss=2**30, ac_utime=2**40)
    alone = thread(pid, group=group, flags=LAST, **figures)[20:]
    body = attribute(_TGID, struct.pack("=I", group)) + attribute(_STATS, bytes(summed))
    return message(alone + attribute(_OF_TGID, body))


def sum_of_group(group: int) -> bytes:
    """Return a message with nothing but the sum of a group."""
    summed = Statistics(version=13, ac_tgid=group, ac_pid=group, ac_flag=LAST, hiwater_rss=2**30)
    return message(attribute(_OF_TGID, attribute(_TGID, struct.pack("=I", group)) + attribute(_STATS, bytes(summed))))


def message(body: bytes) -> bytes:
    """Return a netlink message of the TASKSTATS family: nlmsghdr, genlmsghdr, attributes."""
    return struct.pack("=IHHII", 20 + len(body), FAMILY, 0, 0, 0) + struct.pack("=BBH", _NEW, 1, 0) + body


def _of_thread(pid: int, statistics: bytes) -> bytes:
    """Return an attribute as taskstats.c makes it: an empty one precedes the figures, to align them."""
    body = attribute(_PID, struct.pack("=I", pid)) + attribute(_NULL, b"") + attribute(_STATS, statistics)
    return attribute(_OF_PID, body)
