from __future__ import annotations

import errno
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from nncftools.sampler import process_records
from nncftools.sampler.process_records import Exits
from nncftools.sampler.tree import Exit
from tests.conftest import HANGING_S
from tests.sampler.fake_netlink import FakeNetlink, FakeSocket, acknowledgement, family_of
from tests.sampler.taskstats import (
    FORKED,
    KILLED,
    LAST,
    Statistics,
    last_thread_with_sum,
    message,
    sum_of_group,
    thread,
)
from tests.waiting import until

KIB = 1024
MIB = 2**20


@pytest.fixture
def netlink(monkeypatch: pytest.MonkeyPatch) -> FakeNetlink:
    """Replace the kernel's side of the subscription."""
    fake = FakeNetlink()
    monkeypatch.setattr(process_records, "Netlink", fake)
    return fake


def told(netlink: FakeNetlink, *messages: bytes | None) -> list[Exit]:
    """Return the processes that one reading of messages makes."""
    netlink.waiting = list(messages)
    return Exits().read()


def test_layout() -> None:
    """The structure that the tests make has its fields where the kernel's header has them."""
    names = ("cpu_run_virtual_total", "ac_comm", "ac_pid", "hiwater_rss", "ac_tgid")
    places = {name: getattr(Statistics, name).offset for name in names}

    assert places == dict(zip(names, (72, 80, 128, 200, 368), strict=True))


def test_subscription(netlink: FakeNetlink) -> None:
    """The ends of processes on all processors are asked for, which the kernel names as ``0-1`` or so."""
    of = Exits()
    possible = pathlib.Path("/sys/devices/system/cpu/possible").read_bytes().strip()

    assert (netlink.family, netlink.asked) == ("TASKSTATS", [(1, 3, possible + b"\0")])
    assert (of.read(), of.complete) == ([], True)


class TestProcess:
    def test_of_one_thread(self, netlink: FakeNetlink) -> None:
        """Every figure of a process is read, in bytes and seconds."""
        figures = {"user_us": 1_500_000, "system_us": 250_000, "elapsed_us": 3_000_000, "mark_kib": 2048}
        (found,) = told(netlink, thread(70, parent=7, name=b"python3", status=3 << 8, **figures))

        assert (found.pid, found.parent_pid, found.name, found.wait_status) == (70, 7, "python3", 3 << 8)
        assert (found.cpu_s, found.elapsed_s, found.high_water_mark) == (1.75, 3.0, 2 * MIB)
        assert found.forked_copy is False

    def test_of_several_threads(self, netlink: FakeNetlink) -> None:
        """CPU time is the sum over the threads, the mark their largest; the last thread returns the process."""
        found = told(
            netlink,
            thread(71, group=70, flags=0, user_us=1_000, mark_kib=10),
            thread(72, group=70, flags=0, user_us=2_000, system_us=100, mark_kib=30),
            last_thread_with_sum(70, 70, user_us=4_000, mark_kib=20, parent=7, status=5 << 8),
        )

        assert [(of.pid, of.cpu_s, of.high_water_mark) for of in found] == [(70, pytest.approx(0.0071), 30 * KIB)]
        assert (found[0].wait_status, found[0].parent_pid) == (5 << 8, 7)

    def test_cpu_time_to_the_nanosecond(self, netlink: FakeNetlink) -> None:
        """CPU time is the scheduler's, of each thread; ticks count only where the kernel does not report that."""
        ticks = {"user_us": 4_000, "system_us": 8_000}
        (found,) = told(
            netlink, thread(71, group=70, flags=0, run_ns=7_654_321, **ticks), thread(70, run_ns=1_000, **ticks)
        )
        (of_ticks,) = told(netlink, thread(70, **ticks))

        assert found.cpu_s == pytest.approx(0.007655321)
        assert of_ticks.cpu_s == pytest.approx(0.012)

    def test_threads_of_several_readings(self, netlink: FakeNetlink) -> None:
        """Threads may end long before their process does."""
        of = Exits()
        netlink.waiting = [thread(71, group=70, flags=0, user_us=1_000_000, mark_kib=10)]
        before = of.read()
        netlink.waiting = [thread(70, user_us=2_000_000, mark_kib=5)]
        (after,) = of.read()

        assert before == []
        assert (after.cpu_s, after.high_water_mark) == (3.0, 10 * KIB)

    def test_leader_that_ends_first(self, netlink: FakeNetlink) -> None:
        """Name and number are the leader's, also when other threads outlive it."""
        found = told(
            netlink,
            thread(70, flags=FORKED, name=b"leader", user_us=1_000_000, mark_kib=10, parent=7),
            thread(
                71, group=70, flags=LAST, name=b"worker", user_us=2_000_000, mark_kib=30, parent=8, elapsed_us=9_000
            ),
        )

        assert [(of.pid, of.name, of.forked_copy) for of in found] == [(70, "leader", True)]
        assert (found[0].cpu_s, found[0].high_water_mark) == (3.0, 30 * KIB)
        assert (found[0].parent_pid, found[0].elapsed_s) == (8, 0.009)

    def test_status_of_a_process_whose_leader_ended_first(self, netlink: FakeNetlink) -> None:
        """The exit status is the one that the parent gets: of the thread that ended the process, not the leader's."""
        (found,) = told(netlink, thread(70, flags=0, status=0), thread(71, group=70, flags=LAST, status=3 << 8))

        assert found.wait_status == 3 << 8

    def test_status_of_a_process_one_of_whose_threads_had_its_own(self, netlink: FakeNetlink) -> None:
        """What a single thread ended with before is not the process's exit status."""
        (found,) = told(netlink, thread(71, group=70, flags=0, status=5 << 8), thread(70, status=0))

        assert found.wait_status == 0

    def test_two_processes_at_a_time(self, netlink: FakeNetlink) -> None:
        """Threads of several processes that end together are kept apart."""
        found = told(
            netlink,
            thread(71, group=70, flags=0, mark_kib=70),
            thread(81, group=80, flags=0, mark_kib=80),
            thread(80, mark_kib=1),
            thread(70, mark_kib=1),
        )

        assert [(of.pid, of.high_water_mark) for of in found] == [(80, 80 * KIB), (70, 70 * KIB)]

    def test_reused_pid(self, netlink: FakeNetlink) -> None:
        """A process with the PID of one that ended has figures of its own."""
        first, second = told(netlink, thread(70, user_us=1_000_000, mark_kib=9), thread(70, user_us=5, mark_kib=1))

        assert (first.cpu_s, first.high_water_mark) == (1.0, 9 * KIB)
        assert (second.cpu_s, second.high_water_mark) == (5e-06, KIB)

    @pytest.mark.parametrize(
        ("status", "flags"),
        [(0, 0), (3 << 8, 0), (255 << 8, 0), (signal.SIGKILL, KILLED), (signal.SIGSEGV | 0x80, KILLED)],
        ids=["0", "3", "255", "killed", "dumped core"],
    )
    def test_status(self, netlink: FakeNetlink, status: int, flags: int) -> None:
        """The exit status is given as wait(2) gives it."""
        (found,) = told(netlink, thread(70, status=status, flags=LAST | flags))

        assert found.wait_status == status

    @pytest.mark.parametrize(
        ("name", "expected"),
        [(b"a) b (c", "a) b (c"), (b"", ""), (b"caf\xe9", "caf\\xe9"), (b"n" * 15, "n" * 15)],
    )
    def test_name(self, netlink: FakeNetlink, name: bytes, expected: str) -> None:
        """A name is any bytes up to the first zero."""
        (found,) = told(netlink, thread(70, name=name))

        assert found.name == expected

    @pytest.mark.parametrize(("flags", "expected"), [(LAST | FORKED, True), (LAST, False)])
    def test_forked_copy(self, netlink: FakeNetlink, flags: int, *, expected: bool) -> None:
        """A process that ended without an exec ran its parent's program."""
        (found,) = told(netlink, thread(70, flags=flags))

        assert found.forked_copy is expected

    def test_huge_values(self, netlink: FakeNetlink) -> None:
        """A mark of terabytes and years of CPU time are read correctly."""
        (found,) = told(netlink, thread(2**22, mark_kib=2**44, user_us=10**15))

        assert (found.pid, found.high_water_mark, found.cpu_s) == (2**22, 2**54, 10**9)

    def test_kernel_thread(self, netlink: FakeNetlink) -> None:
        """What never had memory has no mark."""
        (found,) = told(netlink, thread(70, parent=2, name=b"kworker/0:1"))

        assert found.high_water_mark == 0

    def test_sum_of_a_group_is_ignored(self, netlink: FakeNetlink) -> None:
        """What the kernel adds up by itself is no thread's."""
        assert told(netlink, sum_of_group(70)) == []

    @pytest.mark.parametrize(
        "body", [b"", b"\x04\x00\x06\x00", b"\x04\x00\x04\x00"], ids=["nothing", "null", "no figures"]
    )
    def test_message_without_figures(self, netlink: FakeNetlink, body: bytes) -> None:
        """A message that holds no figures is none of an end."""
        assert told(netlink, message(body)) == []


def test_refusal_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the kernel refuses the subscription, its OSError is raised and the socket closed."""
    socket = FakeSocket(family_of("TASKSTATS"), acknowledgement(), acknowledgement(errno.EPERM))
    module: Any = process_records._socket
    monkeypatch.setattr(module, "socket", socket)
    with pytest.raises(PermissionError, match="Operation not permitted"):
        Exits()

    assert socket.closed


class TestNotUnderstood:
    @pytest.mark.parametrize("version", [1, 11, 15])
    def test_version_that_is_refused(self, netlink: FakeNetlink, version: int) -> None:
        """Without thread groups, or with other offsets, no process is returned, and accounting is incomplete."""
        netlink.waiting = [thread(70, version=version), thread(71, version=version)]
        of = Exits()

        assert (of.read(), of.complete) == ([], False)

    @pytest.mark.parametrize("version", [12, 13, 14, 16, 17])
    def test_version_that_is_understood(self, netlink: FakeNetlink, version: int) -> None:
        """The versions that keep the fields in their places are read."""
        netlink.waiting = [thread(70, version=version)]
        of = Exits()

        assert ([found.pid for found in of.read()], of.complete) == ([70], True)


class TestLoss:
    def test_lost_messages(self, netlink: FakeNetlink) -> None:
        """When the kernel could not keep all, the accounting is incomplete, and goes on."""
        of = Exits()
        netlink.waiting = [thread(70), None, thread(80), thread(90)]
        found = [ended.pid for _ in range(3) for ended in of.read()]

        assert (found, of.complete) == ([70, 80, 90], False)

    def test_threads_before_a_loss(self, netlink: FakeNetlink) -> None:
        """Figures of threads whose process' end may have been lost do not get into a later process of that PID."""
        of = Exits()
        netlink.waiting = [thread(71, group=70, flags=0, user_us=9_000_000, mark_kib=900), None, thread(70, mark_kib=1)]
        found = [ended for _ in range(2) for ended in of.read()]

        assert [(ended.cpu_s, ended.high_water_mark) for ended in found] == [(0.0, KIB)]

    def test_other_errors_are_told(self, netlink: FakeNetlink, monkeypatch: pytest.MonkeyPatch) -> None:
        """An error that is no loss is not hidden."""
        of = Exits()

        def broken() -> list[bytes]:
            raise OSError(errno.EBADF, "Bad file descriptor")

        monkeypatch.setattr(netlink, "received", broken)

        with pytest.raises(OSError, match="Bad file descriptor"):
            of.read()


Subscription = Exits | OSError


@pytest.fixture
def real() -> Iterator[Subscription]:
    """Return a subscription to this machine's kernel, or its reason against it."""
    try:
        of = Exits()
    except OSError as error:
        yield error
    else:
        yield of
        of._netlink._socket.close()


def wait_for(of: Exits, *pids: int) -> list[Exit]:
    """Return all reports up to those of some processes."""
    found: list[Exit] = []

    def all_told() -> bool:
        found.extend(of.read())
        return set(pids) <= {ended.pid for ended in found}

    until(all_told, "the ends of processes")
    return found


def ended(of: Exits, words: Sequence[str]) -> tuple[int, str, Exit]:
    """Run a process; return its status, its output and the kernel's one report of it."""
    child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    output, _ = child.communicate(timeout=HANGING_S)
    found = wait_for(of, child.pid)
    later = subprocess.Popen(["true"])
    later.wait()
    found += wait_for(of, later.pid)
    (once,) = [process for process in found if process.pid == child.pid]
    return child.returncode, output, once


@pytest.mark.process
class TestReal:
    """This machine's kernel: with the privilege its figures are tested, without it that it refuses."""

    def test_process_that_touched_memory(self, real: Subscription) -> None:
        """A process of 50 MiB that exits with 3 is reported once, with that status and its own high-water mark."""
        if isinstance(real, OSError):
            assert real.strerror
            return
        script = (
            "import os\nheld = bytearray(50 << 20)\nheld[::4096] = b'x' * len(held[::4096])\n"
            "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0], flush=True)\nos._exit(3)"
        )
        code, output, found = ended(real, [sys.executable, "-S", "-E", "-c", script])

        assert (code, found.wait_status, found.parent_pid) == (3, 3 << 8, os.getpid())
        assert found.high_water_mark == pytest.approx(int(output) * KIB, rel=0.02)
        assert found.high_water_mark >= 50 * MIB
        assert found.cpu_s > 0
        assert real.complete

    def test_process_that_was_killed(self, real: Subscription) -> None:
        """A killed process is reported with its signal."""
        if isinstance(real, OSError):
            assert real.strerror
            return
        _, _, found = ended(real, ["sh", "-c", "kill -KILL $$"])

        assert (found.wait_status, found.name) == (signal.SIGKILL, "sh")

    def test_process_of_several_threads(self, real: Subscription) -> None:
        """The CPU time of a process is that of all its threads.

        A kernel without delay accounting counts ticks that found a thread running: the sum may be too high or too low.
        """
        if isinstance(real, OSError):
            assert real.strerror
            return
        script = (
            "import os, threading, time\ndef burn():\n    while time.thread_time() < 0.05: pass\n"
            "threads = [threading.Thread(target=burn) for _ in range(10)]\n"
            "[thread.start() for thread in threads]\n[thread.join() for thread in threads]\n"
            "print(time.process_time(), flush=True)\nos._exit(0)"
        )
        _, output, found = ended(real, [sys.executable, "-S", "-E", "-c", script])

        assert float(output) >= 0.5
        exact = pathlib.Path("/proc/sys/kernel/task_delayacct").exists()
        assert found.cpu_s == pytest.approx(float(output), rel=0.1 if exact else 0.6)

    def test_process_whose_first_thread_ended_before(self, real: Subscription) -> None:
        """The status is that of wait(2), also long after the end of the first thread."""
        if isinstance(real, OSError):
            assert real.strerror
            return
        script = (
            "import ctypes, os, threading, time\ndef last():\n"
            "    while open('/proc/self/stat').read().rpartition(')')[2].split()[0] != 'Z': time.sleep(0.001)\n"
            "    os._exit(3)\n"
            "threading.Thread(target=last).start()\nctypes.CDLL(None).pthread_exit(None)"
        )
        code, _, found = ended(real, [sys.executable, "-S", "-E", "-c", script])

        assert (code, found.wait_status) == (3, 3 << 8)

    def test_without_the_privilege(self) -> None:
        """A user other than root gets an OSError with the reason."""
        script = (
            "import os, sys; sys.path.insert(0, sys.argv[1])\nfrom nncftools.sampler.process_records import Exits\n"
            "os.getuid() or os.setuid(65534)\n"
            "try: Exits()\nexcept OSError as error: print(error.strerror)"
        )
        here = str(pathlib.Path(__file__).parents[2])
        words = [sys.executable, "-c", script, here]
        shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout

        assert shown.strip()
