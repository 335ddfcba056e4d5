from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest

from nncftools.marks import line


@pytest.mark.parametrize(
    "text",
    ["", 'a "quoted" \\ one', "tab\tline\nnul\0", "世界", "\u2028", "😀", "\x7f", "\ud800", "a\udcffb", "\udc00\ud800"],
)
def test_quoted_is_json(text: str) -> None:
    """Any text survives the round trip in ASCII without line breaks; half a pair of surrogates is replaced."""
    quoted = line.quote(text)

    assert msgspec.json.decode(quoted) == "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
    assert quoted.isascii()
    assert "\n" not in quoted


@pytest.mark.process
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is no /proc")
@pytest.mark.parametrize(
    "took_ns, has_one_thread, has_child, is_known",
    [
        (1_000_000, False, False, True),
        (3_000_000, False, False, False),
        (3_000_000, True, False, True),
        (3_000_000, True, True, False),
    ],
)
def test_interrupted_reading(
    monkeypatch: pytest.MonkeyPatch, took_ns: int, *, has_one_thread: bool, has_child: bool, is_known: bool
) -> None:
    """Descendants are unknown if a reading takes long: threads and children may have begun others in between."""
    monkeypatch.setattr(line, "monotonic_ns", iter([0, took_ns]).__next__)
    monkeypatch.setattr(line, "_has_one_thread", lambda: has_one_thread)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) if has_child else contextlib.nullcontext():
        own = json.loads(f'{{"x":0{line.own_memory()}}}')

    assert own["rss"] > 0
    assert ("descendants" in own) == is_known


def test_own_memory_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the kernel does not tell, the members are missing."""

    def fail(*_: object) -> int:
        raise FileNotFoundError

    monkeypatch.setattr(os, "open", fail)

    assert line.own_memory() == ""


class Torch(types.ModuleType):
    """Says what a torch with two GPUs says; its CUDA has begun or not."""

    def __init__(self, *, is_begun: bool = True, has_statistics: bool = True) -> None:
        super().__init__("torch")
        self.__file__ = "/lib/torch/__init__.py"
        self.asked: list[str] = []
        held = {0: (5, 7), 1: (0, 0)}

        def device_count() -> int:
            self.asked.append("count")
            return 2

        self.cuda = types.ModuleType("torch.cuda")
        vars(self.cuda).update(
            is_initialized=lambda: is_begun,
            device_count=device_count,
            get_device_properties=lambda number: types.SimpleNamespace(uuid=f"uuid-{number}"),
            memory_allocated=lambda number: held[number][0],
            max_memory_allocated=lambda number: held[number][1],
        )
        if has_statistics:
            self.count_by(
                lambda number: {"allocated_bytes": {"all": dict(zip(("current", "peak"), held[number], strict=True))}}
            )

    def count_by(self, statistics: Callable[[int], object]) -> None:
        """Take this for what the allocator counts."""
        vars(self.cuda)["memory_stats_as_nested_dict"] = statistics

    def load(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Be a package that was imported, with its part."""
        monkeypatch.setitem(sys.modules, "torch", self)
        monkeypatch.setitem(sys.modules, "torch.cuda", self.cuda)


class TestDevices:
    @pytest.mark.parametrize("has_statistics", [True, False])
    def test_allocator(self, monkeypatch: pytest.MonkeyPatch, *, has_statistics: bool) -> None:
        """Each GPU that torch has used is there with its UUID, what it holds, and the most so far."""
        Torch(has_statistics=has_statistics).load(monkeypatch)
        own = json.loads(f'{{"x":0{line.own_memory()}}}')

        assert own["devices"] == [["cuda0", "uuid-0", 5, 7]]

    def test_cuda_is_never_begun(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of a torch that does not use CUDA, nothing else is asked."""
        torch = Torch(is_begun=False)
        torch.load(monkeypatch)

        assert (line.read_devices(), torch.asked) == ("", [])

    @pytest.mark.parametrize("is_lazy", [None, False, True])
    def test_nothing_is_loaded(self, monkeypatch: pytest.MonkeyPatch, is_lazy: bool | None) -> None:  # noqa: FBT001
        """A program without torch has no such member, nor one that still imports it; no lazy part is loaded."""
        asked: list[str] = []

        class Lazy(types.ModuleType):
            def __getattribute__(self, name: str) -> object:
                asked.append(name)
                raise AssertionError(name)

        for name in ("torch", "torch.cuda", "torch.xpu"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        if is_lazy is not None:
            monkeypatch.setitem(sys.modules, "torch", (Lazy if is_lazy else types.ModuleType)("torch"))
        if is_lazy:
            monkeypatch.setitem(sys.modules, "torch.xpu", Lazy("torch.xpu"))

        assert (line.read_devices(), asked) == ("", [])

    @pytest.mark.parametrize("error", [KeyError("current"), NotImplementedError("no such backend")])
    def test_other_statistics(self, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
        """The error of a torch that says something else, or that a package has changed, is no error of the program."""
        torch = Torch()
        torch.count_by(mock.Mock(side_effect=error))
        torch.load(monkeypatch)

        assert line.read_devices() == ""

    def test_marked_functions_of_torch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What is marked while torch is asked does not ask torch again."""
        torch = Torch()
        inner = []

        def marked(_: int) -> object:
            inner.append(line.read_devices())
            return {"allocated_bytes": {"all": {"current": 5, "peak": 7}}}

        torch.count_by(marked)
        torch.load(monkeypatch)

        assert (line.read_devices().count("cuda"), line.read_devices().count("cuda"), inner) == (2, 2, [""] * 4)

    @pytest.mark.parametrize("kind", ["function", "any arguments", "reset"])
    def test_the_programs_exceptions_pass(self, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """What a signal handler of the program raises meanwhile is not for us, also of one that is set no more."""

        def function(number: int, _: object) -> None:
            if kind == "reset":
                signal.signal(number, signal.SIG_IGN)
            raise RuntimeError("by a handler")

        def any_arguments(*_: object) -> None:
            raise RuntimeError("by a handler")

        torch = Torch()
        torch.count_by(lambda _: signal.raise_signal(signal.SIGUSR1))
        torch.load(monkeypatch)
        before = signal.signal(signal.SIGUSR1, any_arguments if kind == "any arguments" else function)
        try:
            with pytest.raises(RuntimeError, match="by a handler"):
                line.read_devices()
        finally:
            signal.signal(signal.SIGUSR1, before)


def test_numbers_of_operations_are_the_apis() -> None:
    """In nncftools, operations have odd numbers; the hook's copy of the module uses even ones."""
    assert next(line.operations) % 2 == 1


class TestUnwritten:
    """Lines that cannot be written wait for the next one that can."""

    def test_too_many(self, tmp_path: Path) -> None:
        """Beyond 64 KiB, lines are dropped and counted; the number is written once."""
        log = os.fsencode(tmp_path / "log")
        for number in range(1000):
            line.append(log, f"{number:0>99}\n")
        (tmp_path / "log").touch()
        line.append(log, "c\n")
        line.append(log, "d\n")
        note, *lines = (tmp_path / "log").read_text().splitlines()

        assert json.loads(note) == {"lost": 345, "cut": 0, "pid": os.getpid(), "t_ns": json.loads(note)["t_ns"]}
        assert [*map(int, lines[:-2])] == [*range(655)]
        assert lines[-2:] == ["c", "d"]

    @pytest.mark.process
    @pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")  # pytest-xdist has a thread in each
    def test_forked(self, tmp_path: Path) -> None:
        """A forked child does not write its parent's lines."""
        log = os.fsencode(tmp_path / "log")
        line.append(log, "parent\n")
        (tmp_path / "log").touch()
        if os.fork() == 0:
            line.append(log, "child\n")
            os._exit(0)
        os.wait()
        line.append(log, "end\n")

        assert (tmp_path / "log").read_text() == "child\nparent\nend\n"

    @pytest.mark.process
    def test_full(self, tmp_path: Path) -> None:
        """A line that was written in part comes again, after a note; at its end, a program writes what waits."""
        program = f"""
import resource
from nncftools.marks import line
def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
log = {os.fsencode(tmp_path / "log")!r}
open(log, "w").close()
limit(14)
for text in "abcde":
    line.append(log, 9 * text + "\\n")
limit(resource.RLIM_INFINITY)
"""
        subprocess.run([sys.executable, "-c", program], check=True)
        first, cut, note, *others = (tmp_path / "log").read_text().splitlines()

        assert (first, cut, others) == ("a" * 9, "b" * 4, ["b" * 9, "c" * 9, "d" * 9, "e" * 9])
        assert (json.loads(note)["lost"], json.loads(note)["cut"]) == (0, 1)


@pytest.mark.parametrize(
    "is_own, owner, has_second_name, content",
    [(True, None, False, b"mark\n"), (False, None, False, b""), (True, None, True, b""), (False, 0, False, b"mark\n")],
    ids=["ours", "another user's", "with a second name", "another user's at first"],
)
def test_owner_of_the_log(  # noqa: PLR0913 — the columns of the table
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_own: bool,
    owner: int | None,
    has_second_name: bool,
    content: bytes,
) -> None:
    """What another user put in place of the log gets nothing, unless the log was theirs from its beginning."""
    log = tmp_path / "log"
    log.touch()
    user = os.geteuid()
    if owner is not None:
        monkeypatch.setenv(line.OWNER, str(user))
    if has_second_name:
        (tmp_path / "other").hardlink_to(log)
    monkeypatch.setattr(os, "geteuid", lambda: user + (not is_own))
    line.append(os.fsencode(log), "mark\n")

    assert log.read_bytes() == content


@pytest.mark.parametrize("name", ["missing", "missing/log", "."])
def test_append_makes_nothing(tmp_path: Path, name: str) -> None:
    """A missing log, or one that is not a file, causes no error, and nothing is created."""
    line.append(os.fsencode(tmp_path / name), "text\n")

    assert list(tmp_path.iterdir()) == []


def test_append_lets_the_programs_exceptions_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that a signal handler of the program raises during a write is not mistaken for an unwritable log."""
    log = tmp_path / "log"
    log.touch()

    def interrupted(*_: object) -> int:
        raise TimeoutError("the program's")

    monkeypatch.setattr(os, "write", interrupted)
    with pytest.raises(TimeoutError, match="the program's"):
        line.append(os.fsencode(log), "text\n")


def test_only_a_file_is_written(tmp_path: Path) -> None:
    """A FIFO in place of the log gets nothing, and is not waited for."""
    path = tmp_path / "log"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    for _ in range(10_000):  # more than a pipe holds
        line.append(os.fsencode(path), "{}\n")
    found = os.read(reader, 10)
    os.close(reader)

    assert found == b""


_PROGRAM = """
import ctypes, json, os, subprocess, sys, threading, time
from nncftools.marks import line

line._LONGEST_READING_NS = 1 << 60  # a busy machine interrupts readings: another test is of that

def own():
    return json.loads('{"x":0' + line.own_memory() + "}")

def rss(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def until(holds):
    end_s = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.001)

def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return list(map(int, file.read().split()))

def sleepers(number, words=("sleep", "60")):
    return [subprocess.Popen(words) for _ in range(number)]

def vforked():
    # The child shares our memory and sleeps on a stack of its own, as one of vfork(2) before a slow exec.
    libc = ctypes.CDLL(None)
    stack = ctypes.create_string_buffer(1 << 16)
    top = ctypes.c_void_p(ctypes.addressof(stack) + (1 << 16) - 64 & ~15)
    begin = lambda: libc.clone(ctypes.cast(libc.sleep, ctypes.c_void_p), top, 0x4100 | 17, ctypes.c_void_p(60))
    return begin
"""


@pytest.mark.process
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is no /proc")
class TestDescendants:
    """What a process reads of its children and theirs."""

    @staticmethod
    def result(program: str) -> Any:  # noqa: ANN401 — what the program prints
        """Run a program of its own, end all that it started, and return what it prints."""
        text = f"{_PROGRAM}\n{program}\nprint(json.dumps(found), flush=True)\n"
        words = [sys.executable, "-c", text]
        with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as running:
            assert running.stdout is not None
            try:
                return json.loads(running.stdout.readline())
            finally:
                os.killpg(running.pid, signal.SIGKILL)

    def test_none_and_few(self) -> None:
        """One child is listed with its RSS; so is one that another thread began. Without children there are none."""
        none, alone, one, two = self.result("""
none = own()["descendants"]
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
alone = own()["descendants"]
(first,) = sleepers(1)
def read():
    global one
    one = own()
    return one["descendants"] == [[first.pid, rss(first.pid)]] and rss(first.pid) > 1 << 20
until(read)
threading.Thread(target=lambda: (sleepers(1), time.sleep(60)), daemon=True).start()
until(lambda: [held > 0 for _, held in own()["descendants"]] == [True] * 2)
found = none, alone, one, own()
""")

        assert none == alone == []
        assert one["listed"] is True
        assert one["descendants"][0][0] in dict(two["descendants"])

    def test_zombie(self) -> None:
        """A child that has ended and was not waited for holds nothing."""
        found, pid = self.result("""
(child,) = sleepers(1, ["true"])
os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
found = own(), child.pid
""")

        assert (found["descendants"], found["listed"]) == ([[pid, 0]], True)

    def test_grandchildren(self) -> None:
        """The children of few children are listed, too, after their parents."""
        found, above, below = self.result("""
(child,) = sleepers(1, ["sh", "-c", "sleep 60 & sleep 60 & wait"])
until(lambda: len(children(child.pid)) == 2)
found = own(), child.pid, children(child.pid)
""")

        assert [pid for pid, _ in found["descendants"]] == [above, *below]
        assert found["listed"] is True

    def test_five(self) -> None:
        """Of five children, the children are not looked for, and the line does not say that they are listed."""
        found, pids = self.result("""
found = sleepers(5, ["sh", "-c", "sleep 60 & wait"])
until(lambda: all(children(child.pid) for child in found))
found = own(), [child.pid for child in found]
""")

        assert [pid for pid, _ in found["descendants"]] == pids
        assert "listed" not in found

    @pytest.mark.parametrize("number, expected", [(16, 16), (17, None)])
    def test_crowd(self, number: int, expected: int | None) -> None:
        """More than 16 are unknown, which is not none."""
        found = self.result(f"sleepers({number})\nfound = own()").get("descendants")

        assert (None if found is None else len(found)) == expected

    @pytest.mark.parametrize("failures, expected", [(1, True), (2, False)])
    def test_reaped_meanwhile(self, failures: int, expected: bool) -> None:  # noqa: FBT001 — a parameter
        """When a child is gone after it was listed, everything is read again, once; then it is unknown."""
        found = self.result(f"""
sleepers(1)
content, failures = line._content, [ProcessLookupError] * {failures}
def fake(path):
    path = os.fsencode(path)
    if path.endswith(b"statm") and b"self" not in path and failures:
        raise failures.pop()
    return content(path)
line._content = fake
found = own()
""")

        assert ("descendants" in found) is expected
        assert found["rss"] > 0

    def test_without_waitid(self) -> None:
        """Where the system has no waitid(2), descendants are unknown."""
        assert "descendants" not in self.result("del os.waitid\nfound = own()")

    def test_forked_copy(self) -> None:
        """A forked copy counts in full: samples count it so, too."""
        found, pid, held = self.result("""
ready, write = os.pipe()
child = os.fork()
if not child:
    os.write(write, b"x")
    time.sleep(60)
os.read(ready, 1)
found = own(), child, rss(child)
""")

        ((child, rss),) = found["descendants"]
        assert child == pid
        assert abs(rss - held) < 2**20  # the child goes on: its RSS moves by some pages
        assert held * 4 > found["rss"]

    def test_vforked(self) -> None:
        """A child of vfork(2) of another thread holds nothing before its exec; a copy that it forked before does."""
        found, copy, held, vforked = self.result("""
copies = []
begin = vforked()
ready, write = os.pipe()
def work():
    copies.append(os.fork())
    if not copies[-1]:
        os.write(write, b"x")
        time.sleep(60)
        os._exit(0)
    os.read(ready, 1)
    begin()
thread = threading.Thread(target=work, daemon=True)
thread.start()
task = lambda: f"/proc/self/task/{thread.native_id}"
def both():
    with open(task() + "/children") as file:
        pids = file.read().split()
    with open(task() + "/stat") as file:
        return pids if len(pids) == 2 and file.read().rpartition(")")[2].split()[0] == "D" else None
until(both)
found = own(), copies[0], rss(copies[0]), int(both()[1])
""")
        descendants = dict(found["descendants"])

        assert set(descendants) == {copy, vforked}
        assert descendants[vforked] == 0
        assert abs(descendants[copy] - held) < 1 << 20 < held
