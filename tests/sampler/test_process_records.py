from __future__ import annotations

import errno
import os
import pathlib
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import pytest

from nncftools.sampler import process_records
from nncftools.sampler.high_water_marks import HighWaterMarks
from nncftools.sampler.probes.process import Stat
from nncftools.sampler.process_records import Exit as process_records_Exit
from nncftools.sampler.process_records import Exits, Netlink, ProcessRecords, attributes, log_barriers
from nncftools.sampler.tree import PAGE, TICKS_PER_S, Allowance, Exit, Process, Tree
from tests.conftest import HANGING_S
from tests.sampler.fake_netlink import FAMILY, FakeNetlink, FakeSocket, acknowledgement, answer, attribute, family_of
from tests.sampler.fake_proc import FakeProc, Told, facts, look
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


def exits_ended(of: Exits, words: Sequence[str]) -> tuple[int, str, Exit]:
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
        code, output, found = exits_ended(real, [sys.executable, "-S", "-E", "-c", script])

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
        _, _, found = exits_ended(real, ["sh", "-c", "kill -KILL $$"])

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
        _, output, found = exits_ended(real, [sys.executable, "-S", "-E", "-c", script])

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
        code, _, found = exits_ended(real, [sys.executable, "-S", "-E", "-c", script])

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


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeSocket:
    """Replace the socket by one that knows the family."""
    socket = FakeSocket(family_of("TASKSTATS"), acknowledgement())
    module: Any = process_records._socket
    monkeypatch.setattr(module, "socket", socket)
    return socket


class TestAttributes:
    def test_padding(self) -> None:
        """Every attribute begins at a multiple of four bytes and has its own length."""
        data = b"head" + attribute(1, b"a") + attribute(2, b"") + attribute(3, b"12345678")

        assert list(attributes(data, 4)) == [(1, b"a"), (2, b""), (3, b"12345678")]

    @pytest.mark.parametrize("rest", [b"", b"\0", b"\0\0\0"])
    def test_rest(self, rest: bytes) -> None:
        """What is too short for an attribute is none."""
        assert list(attributes(attribute(1, b"abcd") + rest, 0)) == [(1, b"abcd")]

    @pytest.mark.parametrize("length", [0, 3])
    def test_without_length(self, length: int) -> None:
        """An attribute shorter than its own header is refused, and causes no endless loop."""
        with pytest.raises(OSError, match="without length"):
            list(attributes(struct.pack("=HH", length, 1) + b"\0" * 8, 0))


class TestSocket:
    def test_asks_for_the_family(self, fake: FakeSocket) -> None:
        """The family's number is asked for by its name, and then used."""
        of = Netlink("TASKSTATS", 1 << 20)
        fake.answers = [acknowledgement()]
        of.ask(1, 3, b"0-1\0")
        first, second = fake.sent

        assert struct.unpack_from("=IHH", first) == (len(first), 16, 5)
        assert b"TASKSTATS\0" in first
        assert struct.unpack_from("=IHH", second) == (len(second), FAMILY, 5)
        assert list(attributes(second, 20)) == [(3, b"0-1\0")]

    def test_refusal(self, fake: FakeSocket) -> None:
        """What the kernel refuses is the OSError that it names."""
        of = Netlink("TASKSTATS", 1 << 20)
        fake.answers = [acknowledgement(errno.EPERM)]

        with pytest.raises(PermissionError, match="Operation not permitted"):
            of.ask(1, 3, b"0\0")

    def test_unknown_family(self, fake: FakeSocket) -> None:
        """A kernel without the family is an error, and no descriptor stays open."""
        fake.answers = [acknowledgement(errno.ENOENT)]

        with pytest.raises(FileNotFoundError):
            Netlink("TASKSTATS", 1 << 20)
        assert fake.closed

    def test_messages_between_question_and_answer(self, fake: FakeSocket) -> None:
        """A message that comes before the kernel's word is not taken for it."""
        of = Netlink("TASKSTATS", 1 << 20)
        fake.answers = [answer(b""), acknowledgement(errno.EPERM)]

        with pytest.raises(PermissionError):
            of.ask(1, 3, b"0\0")

    def test_received(self, fake: FakeSocket) -> None:
        """What waits is given, and then the end, without waiting for more."""
        of = Netlink("TASKSTATS", 1 << 20)
        fake.answers = [b"one", b"two"]

        assert list(of.received()) == [b"one", b"two"]

    def test_lost(self, fake: FakeSocket) -> None:
        """A loss is raised, after what came before it."""
        of = Netlink("TASKSTATS", 1 << 20)
        fake.answers = [b"one", OSError(errno.ENOBUFS, "No buffer space available")]
        found = []

        with pytest.raises(OSError, match="No buffer space"):
            found.extend(list(of.received()))
        assert (found, fake.answers) == ([], [])


def test_family_that_no_kernel_has() -> None:
    """This machine's kernel refuses a family that it does not know, and no descriptor stays open."""
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 — counted, not used
    with pytest.raises(OSError, match=r"."):
        Netlink("NO_SUCH_FAMILY", 1 << 16)

    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 — the same


MIB = 2**20
REAPER = 50
NEVER_MORE_THAN = 4096


def ended(pid: int, parent: int, **fields: Any) -> process_records_Exit:  # noqa: ANN401 — any field
    """Return the kernel's report of the end of a process."""
    of = process_records_Exit(pid)
    of.parent_pid = parent
    of.name = f"n{pid}"
    for name, value in fields.items():
        setattr(of, name, value)
    return of


_BOOTED_S = 1000
"""The machine has run so long when the recording begins."""


class Recording:
    """The records of the tree of process 1, which is found at the start, and the lines that were written.

    Processes begin with the recording, as a command does that it starts.
    """

    def __init__(self, proc: FakeProc, *, children: bool = True, accounting: bool = True) -> None:
        self.told: Told = []
        proc.started = _BOOTED_S * TICKS_PER_S
        proc.add(1, name="first")
        self.tree: Tree = proc.tree(children=children)
        with mock.patch("time.clock_gettime", return_value=_BOOTED_S):
            self.records = ProcessRecords(
                self.tree, self._tell, HighWaterMarks(self._tell), reaper=REAPER, accounting=accounting
            )
        self.records.add(self.tree.processes[0], 0.0)

    def _tell(self, key: str, value: object) -> None:
        self.told.append((key, value))

    def scan(self, now_s: float = 1.0) -> list[Process]:
        """Look for descendants and introduce those that are found, as a sample does."""
        found = look(self.tree)
        for process in found:
            self.records.add(process, now_s)
        return found

    def remove(self, process: Process, now_s: float = 3.0) -> None:
        """Take a process out of the tree that is gone."""
        self.tree.remove(process)
        self.records.write_end(process, now_s, None, None)

    def facts(self, pid: int) -> dict[str, Any]:
        """Return all facts of a process; fail unless it was recorded as one process."""
        (found,) = [of for of in facts(self.told).values() if of.get("pid") == pid]
        return found

    def pids(self) -> list[int | None]:
        """Return the PIDs of the recorded processes, by number."""
        return [of.get("pid") for _, of in sorted(facts(self.told).items())]


@pytest.fixture
def recording(proc: FakeProc) -> Recording:
    """Return a recording with the kernel's exit accounting."""
    return Recording(proc)


class TestUnseen:
    """Processes that ended before any scan found them."""

    def test_child(self, recording: Recording) -> None:
        """A child of a process of the tree is recorded with its parent and all its figures.

        It ended between the last two readings of the messages, and may have begun so much before the first.
        """
        of = ended(5, 1, cpu_s=0.25, elapsed_s=0.5, high_water_mark=3 * MIB, wait_status=3 << 8, forked_copy=True)
        recording.records.add_exits([], 1.75)
        recording.records.add_exits([of], 2.0)

        assert recording.facts(5) == {
            "id": 1,
            "pid": 5,
            "parent": 0,
            "name": "n5",
            "forked_copy": True,
            "start_s": 1.25,
            "end_s": 2.0,
            "high_water_mark": 3 * MIB,
            "accounted": True,
            "cpu_s": 0.25,
            "exit": {"code": 3, "signal": None},
        }

    def test_signal(self, recording: Recording) -> None:
        """A killed process is recorded with the signal, also when it dumped its memory."""
        recording.records.add_exits([ended(5, 1, wait_status=signal.SIGSEGV | 0x80)], 2.0)

        assert recording.facts(5)["exit"] == {"code": None, "signal": signal.SIGSEGV}

    def test_mark_that_is_not_known(self, recording: Recording) -> None:
        """A process without memory of its own has no mark, not one of 0."""
        recording.records.add_exits([ended(5, 1)], 2.0)

        assert recording.facts(5)["high_water_mark"] is None

    def test_older_than_the_recording(self, recording: Recording) -> None:
        """The start of a process that is older than the session is the session's."""
        recording.records.add_exits([ended(5, 1, elapsed_s=60.0)], 2.0)

        assert recording.facts(5)["start_s"] == 0.0

    def test_not_older_than_its_parent(self, recording: Recording, proc: FakeProc) -> None:
        """A process that may have begun long before the messages were read cannot have begun before its parent."""
        proc.started += 3 * TICKS_PER_S
        proc.add(5)
        proc.set_children(1, 5)
        (parent,) = recording.scan(3.0)
        recording.records.add_exits([ended(6, 5, elapsed_s=60.0)], 3.5)

        assert recording.facts(6)["start_s"] == recording.facts(parent.pid)["start_s"] == 3.0

    def test_child_of_the_reaper(self, recording: Recording) -> None:
        """An orphan, which became the sampler's child, is recorded without a parent."""
        recording.records.add_exits([ended(5, REAPER)], 2.0)

        assert recording.facts(5)["parent"] is None

    def test_grandchild(self, recording: Recording) -> None:
        """A grandchild that ended before its parent is recorded after it, with its number as parent."""
        recording.records.add_exits([ended(6, 5), ended(5, 1)], 2.0)

        assert recording.pids() == [1, 5, 6]
        assert recording.facts(6)["parent"] == recording.facts(5)["id"]

    def test_generations(self, recording: Recording) -> None:
        """Each process has its parent, for any number of generations that ended unseen, in any number of readings."""
        recording.records.add_exits([ended(8, 7), ended(7, 6)], 2.0)
        recording.records.add_exits([ended(6, 5)], 2.1)
        before = recording.pids()
        recording.records.add_exits([ended(5, 1)], 2.2)

        assert before == [1]
        assert [recording.facts(pid)["parent"] for pid in (5, 6, 7, 8)] == [
            recording.facts(pid)["id"] for pid in (1, 5, 6, 7)
        ]

    def test_child_of_a_process_that_is_found_later(self, recording: Recording, proc: FakeProc) -> None:
        """A child that ended before its parent was found is recorded together with the parent."""
        recording.records.add_exits([ended(6, 5)], 0.5)
        proc.add(5)
        proc.set_children(1, 5)
        recording.scan()

        assert recording.facts(6)["parent"] == recording.facts(5)["id"]

    def test_child_of_a_parent_that_was_found_dead(self, recording: Recording, proc: FakeProc) -> None:
        """When child and parent ended and the scan finds the parent's rest first, the child has the parent's number."""
        proc.add_zombie(5)
        proc.set_children(1, 5)
        recording.scan()
        recording.records.add_exits([ended(6, 5), ended(5, 1)], 2.0)

        assert recording.facts(6)["parent"] == recording.facts(5)["id"]

    def test_unrelated(self, recording: Recording) -> None:
        """Unrelated processes are not recorded."""
        recording.records.add_exits([ended(900 + place, 800) for place in range(100)], 2.0)

        assert recording.pids() == [1]

    def test_without_children(self, proc: FakeProc) -> None:
        """Without descendants, none is recorded; the command itself still has its figures."""
        recording = Recording(proc, children=False)
        recording.records.add_exits([ended(5, 1), ended(6, REAPER), ended(1, 40, cpu_s=0.5)], 2.0)
        recording.remove(recording.tree.processes[0])

        assert recording.pids() == [1]
        assert recording.facts(1)["cpu_s"] == 0.5


class TestBounds:
    def test_processes_of_others_are_forgotten(self, recording: Recording, proc: FakeProc) -> None:
        """Of the ends whose parents are not known, the last 4,096 are kept."""
        pids = range(10_000, 10_000 + NEVER_MORE_THAN + 10)
        recording.records.add_exits([ended(2 * pid, pid) for pid in pids], 0.5)
        for pid in (pids[0], pids[-1]):
            proc.add(pid)
        proc.set_children(1, pids[0], pids[-1])
        recording.scan()

        assert recording.pids() == [1, pids[0], pids[-1], 2 * pids[-1]]

    @pytest.mark.parametrize("parents", [1, 2, 5_000])
    def test_number_that_is_kept(self, recording: Recording, parents: int) -> None:
        """However the ends are spread over parents, no more than 4,096 are kept."""
        for place in range(10_000):
            recording.records.add_exits([ended(20_000 + place, 10_000 + place % parents)], 2.0)

        assert sum(map(len, recording.records._parentless.values())) <= NEVER_MORE_THAN
        assert recording.records._kept == sum(map(len, recording.records._parentless.values()))

    def test_too_many_to_list(self, recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
        """Beyond a number, only what is larger than all before is listed; the others are counted."""
        monkeypatch.setattr(process_records, "_LISTED_MOST", 3)
        marks = [10, 10, 5, 10, 20, 20, 30]
        recording.records.add_exits(
            [ended(100 + place, 1, high_water_mark=mark) for place, mark in enumerate(marks)], 2.0
        )
        recording.records.close()

        assert recording.pids() == [1, 100, 101, 104, 106]
        assert recording.told[-1] == ("warning", "3 more processes, all small and short-lived, are not listed")

    def test_nothing_left_out(self, recording: Recording) -> None:
        """When all processes are listed, there is no warning."""
        recording.records.close()

        assert [key for key, _ in recording.told] == ["process"]


class TestZombie:
    """A process of which only the entry in the process table is left when it is found."""

    def test_found_before_its_message(self, recording: Recording, proc: FakeProc) -> None:
        """A zombie that the scan finds before its message is recorded once, by the message."""
        proc.add_zombie(5)
        proc.set_children(1, 5)
        (zombie,) = recording.scan()
        before = recording.pids()
        recording.records.add_exits([ended(5, 1, cpu_s=0.5)], 2.0)
        recording.remove(zombie)

        assert before == [1]
        assert (recording.facts(5)["cpu_s"], recording.facts(5)["end_s"]) == (0.5, 2.0)

    def test_found_after_its_message(self, recording: Recording, proc: FakeProc) -> None:
        """A zombie that the scan finds after its message is recorded once."""
        recording.records.add_exits([ended(5, 1, cpu_s=0.5)], 2.0)
        proc.add_zombie(5)
        proc.set_children(1, 5)
        (zombie,) = recording.scan(2.1)
        recording.remove(zombie)

        assert (recording.facts(5)["cpu_s"], recording.facts(5)["end_s"]) == (0.5, 2.0)

    def test_dying_process_that_is_found_after_its_message(self, recording: Recording, proc: FakeProc) -> None:
        """A process that still frees its memory after the message about its end is recorded once."""
        recording.records.add_exits([ended(5, 1)], 2.0)
        proc.add(5)
        proc.set_children(1, 5)
        (dying,) = recording.scan(2.5)
        recording.records.update_high_water_mark(dying)
        recording.records.update_identity(dying)
        recording.records.write_figures(dying)
        recording.remove(dying)

        assert recording.facts(5)["end_s"] == 2.0

    def test_reused_pid(self, recording: Recording, proc: FakeProc) -> None:
        """Some time after an end, a process with the same PID is another one."""
        recording.records.add_exits([ended(5, 1)], 2.0)
        recording.records.add_exits([], 3.5)
        proc.add(5, name="other")
        proc.set_children(1, 5)
        recording.scan(3.6)

        assert recording.pids() == [1, 5, 5]

    def test_without_accounting(self, proc: FakeProc) -> None:
        """Without exit accounting, a zombie is recorded when it is found."""
        recording = Recording(proc, accounting=False)
        proc.add_zombie(5)
        proc.set_children(1, 5)
        (zombie,) = recording.scan()
        recording.remove(zombie)

        assert (recording.facts(5)["end_s"], "accounted" in recording.facts(5)) == (3.0, False)


class TestSeen:
    """Processes that a scan found while they lived."""

    def test_who_it_is(self, proc: FakeProc) -> None:
        """A process is recorded with name, command, parent and start."""
        recording = Recording(proc)
        proc.add(5, name="worker")
        proc.set_children(1, 5)
        recording.scan()
        found = recording.facts(5)

        assert (found["id"], found["parent"], found["name"], found["command"]) == (
            1,
            0,
            "worker",
            ["worker", "--option"],
        )
        assert found["forked_copy"] is False
        assert found["start_s"] == recording.facts(1)["start_s"]

    def test_start(self, proc: FakeProc) -> None:
        """The start is counted from the session's, before which it may lie."""
        recording = Recording(proc)
        boot_s = recording.records._boot_at_start_s
        for place, after_s in enumerate((-7.0, 2.0, -0.5 / TICKS_PER_S)):
            recording.records._boot_at_start_s = 47.11 - after_s
            proc.started = 4711
            proc.add(5 + place)
            proc.set_children(1, *range(5, 6 + place))
            recording.scan()

        assert boot_s > 0
        assert [recording.facts(pid)["start_s"] for pid in (5, 6, 7)] == [-7.0, 2.0, 0.0]

    def test_accounted_end(self, recording: Recording) -> None:
        """When a process leaves the tree, the kernel's report of its end replaces the figures of the samples.

        Its end is that of the report: it may have been a zombie since then.
        """
        (process,) = recording.tree.processes
        process.peak_rss, process.samples, process.cpu_ticks = 10, 3, 7
        recording.records.add_exits([ended(1, 40, cpu_s=0.123, high_water_mark=MIB, wait_status=3 << 8)], 2.0)
        before = recording.facts(1)
        recording.remove(process)
        after = recording.facts(1)

        assert "end_s" not in before
        assert (after["accounted"], after["cpu_s"], after["high_water_mark"]) == (True, 0.123, MIB)
        assert (after["exit"], after["end_s"]) == ({"code": 3, "signal": None}, 2.0)
        assert (after["samples"], after["peak_rss"]) == (3, 10 * PAGE)

    def test_end_without_message(self, recording: Recording) -> None:
        """A process whose message was lost is recorded with the figures of the samples."""
        (process,) = recording.tree.processes
        process.peak_rss, process.samples, process.cpu_ticks = 10, 3, 7
        recording.remove(process)
        found = recording.facts(1)

        assert (found["peak_rss"], found["cpu_s"], found["exit"]) == (10 * PAGE, 7 / TICKS_PER_S, None)
        assert "accounted" not in found

    def test_reaped_end(self, recording: Recording) -> None:
        """Status and limit from the reaping are recorded."""
        (process,) = recording.tree.processes
        recording.tree.remove(process)
        recording.records.write_end(process, 3.0, {"code": None, "signal": 9}, 5 * MIB)
        found = recording.facts(1)

        assert (found["exit"], found["high_water_limit"]) == ({"code": None, "signal": 9}, 5 * MIB)

    def test_never_sampled(self, recording: Recording) -> None:
        """A process that was found between two samples has no largest sample, not one of 0."""
        recording.remove(recording.tree.processes[0])

        assert recording.facts(1)["peak_rss"] is None

    def test_outlives_the_recording(self, recording: Recording) -> None:
        """A process that outlives the recording is recorded with its figures and without an end."""
        (process,) = recording.tree.processes
        Stat(0).read([process])
        recording.records.write_figures(process)

        assert (recording.facts(1)["samples"], "end_s" in recording.facts(1)) == (1, False)

    def test_mark_of_the_living(self, recording: Recording) -> None:
        """The kernel's high-water mark is recorded only when it has risen."""
        (process,) = recording.tree.processes
        process.high_water_mark = MIB
        recording.records.update_high_water_mark(process)
        once = len(recording.told)
        recording.records.update_high_water_mark(process)
        twice = len(recording.told)
        process.high_water_mark = 2 * MIB
        recording.records.update_high_water_mark(process)

        assert (once, twice) == (2, 2)
        assert recording.facts(1)["high_water_mark"] == 2 * MIB

    def test_mark_of_before_the_recording(self, recording: Recording, proc: FakeProc) -> None:
        """Of a process that is older than the recording, the mark of before is an upper bound, not a mark."""
        proc.started = 4711
        proc.add(5, pages=100)
        proc.set_children(1, 5)
        (process,) = recording.scan()
        recording.records.write_figures(process)

        assert recording.facts(5)["start_s"] < 0
        assert recording.facts(5)["high_water_mark"] is None
        assert recording.facts(5)["high_water_limit"] == 100 * PAGE

    @pytest.mark.parametrize(("pages", "told"), [(100, None), (101, 101 * PAGE)])
    def test_accounted_mark_of_before_the_recording(
        self, recording: Recording, proc: FakeProc, pages: int, told: int | None
    ) -> None:
        """The same holds for the mark in the kernel's report of the end."""
        proc.started = 4711
        proc.add(5, pages=100)
        proc.set_children(1, 5)
        (process,) = recording.scan()
        recording.records.add_exits([ended(5, 1, high_water_mark=pages * PAGE)], 2.0)
        recording.remove(process)

        assert (recording.facts(5)["high_water_mark"], recording.facts(5)["high_water_limit"]) == (told, 100 * PAGE)

    @pytest.mark.parametrize(("reports", "spent"), [([], 0.15), ([ended(5, 1, cpu_s=3.1515)], 0.1515)])
    def test_cpu_time_of_before_the_recording(
        self, recording: Recording, proc: FakeProc, reports: list[process_records_Exit], spent: float
    ) -> None:
        """Of a process that is older than the recording, only CPU time of the recording counts."""
        proc.started = 4711
        proc.add(5, ticks=(200, 100, 7, 7))
        proc.set_children(1, 5)
        (process,) = recording.scan()
        proc.add(5, ticks=(210, 105, 9, 9))
        Stat(0).read([process])
        recording.records.add_exits(reports, 2.0)
        recording.remove(process)

        assert recording.facts(5)["cpu_s"] == pytest.approx(spent)

    def test_accounted_mark_of_the_last_program(self, recording: Recording) -> None:
        """The mark in the kernel's report is of the last program: that of a program before its exec may be larger."""
        (process,) = recording.tree.processes
        process.high_water_mark = 600 * MIB
        recording.records.add_exits([ended(1, 40, high_water_mark=MIB)], 2.0)
        recording.remove(process)

        assert recording.facts(1)["high_water_mark"] == 600 * MIB

    def test_exec(self, recording: Recording, proc: FakeProc) -> None:
        """A new name is recorded once."""
        proc.add(1, name="program")
        for _ in range(2):
            recording.records.update_identity(recording.tree.processes[0])

        assert [value["name"] for _, value in recording.told] == ["first", "program"]


@pytest.mark.process
class TestApart:
    def test_itself(self) -> None:
        """Nothing keeps a process from its own marks log."""
        assert log_barriers(live(os.getpid())) == []

    @pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
    @pytest.mark.parametrize(
        ("change", "expected"),
        [("os.setuid(65534)", ["user"]), ("os.chroot('/tmp')", ["root"]), ("pass", [])],
    )
    def test_another_user_or_root(self, change: str, expected: list[str]) -> None:
        """Another user or root folder keeps a process from the log; what is unknown does not."""
        program = f"import os; {change}; os.write(1, b'ready'); os.read(0, 1)"
        words = [sys.executable, "-c", program]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            assert child.stdout.read(5) == b"ready"

            assert log_barriers(live(child.pid)) == expected
            child.kill()


def live(pid: int) -> Process:
    """Return a process that lives."""
    return Process("/proc", pid, None, 0, (), allowance=Allowance())
