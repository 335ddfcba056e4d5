"""The layout that a Python publishes, and Pythons whose order of fields nobody knows."""

from __future__ import annotations

import copy
import os
import struct
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nncftools.session.snapshots import LineTable
from nncftools.snapshots import finding
from nncftools.snapshots.finding import TriedMemory, published_layout, python_memory
from nncftools.snapshots.python_memory import NoStackError, UnknownPythonError, UnreadableError
from tests.pythons import python
from tests.snapshots.made_up_layout import OFFSETS, layout_of, packed, words_of
from tests.waiting import until

if TYPE_CHECKING:
    from nncftools.snapshots.python_memory import PythonMemory

PUBLISHING = ["3.13", "3.14", "3.15"]
NEWER = 16
PROGRAM = """\
import threading, time


class Model:
    @staticmethod
    def forward(value, *others):
        held = [value for _ in range(3)]
        print("ready", flush=True)
        time.sleep(1000)
        return held

    def __init__(self, seconds):
        self.seconds = seconds
        time.sleep(seconds)


def work():
    for seconds in [0] * 99 + [1000]:
        Model(seconds)


threading.Thread(target=work, daemon=True).start()
[Model.forward(1) for _ in "a"]
"""
Stacks = dict[int, list[tuple[str, str, int]]]


@pytest.mark.parametrize("version", [13, 14, 15])
def test_order(version: int) -> None:
    """Each version's own order tells where the fields are; fields that a version adds come in between."""
    found, layout, is_known = published_layout(packed(words_of(version)))

    assert (found, is_known) == (version, True)
    assert layout == layout_of(13)
    assert (layout["file"], layout["owner"], layout["text"], layout["wide_text"]) == (112, 70, 40, 56)
    assert (layout["interpreters"], layout["next_interpreter"], layout["threads"]) == (632, 7264, 7344)


@pytest.mark.parametrize(
    "number, is_known", [(0x30F00F0, True), (0x30F00C1, False), (0x30F00A7, False), (0x31000F0, False)]
)
def test_order_that_may_differ(number: int, is_known: bool) -> None:  # noqa: FBT001 — a column
    """Only the orders of final releases are known."""
    words = words_of(15)
    words[1] = number
    assert published_layout(packed(words))[2] is is_known


@pytest.mark.parametrize("version", [13, 14, 15, NEWER])
def test_without_global_lock(version: int) -> None:
    """A build without the global lock is refused by name."""
    words = words_of(version)
    words[2] = 1
    with pytest.raises(UnknownPythonError, match=rf"^the layout of Python 3\.{version}t is not known$"):
        published_layout(packed(words))


@pytest.mark.parametrize(
    "struct_name, field, offset",
    [
        ("code", "file", 113),  # not a word
        ("code", "file", 208),  # behind the end of its struct
        ("code", "size", 0),
        ("code", "size", 1 << 40),
        ("code", "bytecode", 192),  # the bytecode is last
        ("frame", "size", 4_096),  # larger than what is read of a frame
        ("string", "state", 40),
        ("bytes", "bytes", 24),
        ("object", "size", 24),
    ],
)
def test_impossible_layout(struct_name: str, field: str, offset: int) -> None:
    """A layout that cannot be is refused, also of a version whose order is known."""
    offsets = copy.deepcopy(OFFSETS)
    offsets[struct_name][field] = offset
    with pytest.raises(UnknownPythonError, match=r"^the layout of Python 3\.14 is not known$"):
        published_layout(packed(words_of(14, offsets)))


@pytest.fixture(params=PUBLISHING)
def running(request: pytest.FixtureRequest, tmp_path: Path) -> object:
    """Run the program with a Python that publishes its layout; yield the process."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    words = [python(request.param), "-S", "-E", str(path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def opened(pid: int) -> PythonMemory | None:
    """Return the memory of a process."""
    return python_memory(f"/proc/{pid}", Path(f"/proc/{pid}/maps").read_bytes())


def stacks_of(memory: PythonMemory) -> Stacks:
    """Return function, file and line of each frame, by thread."""
    return {
        thread: [
            (code.name, code.file, LineTable(memory.version, code.lines).line_at(code.first_line, offset))
            for code, offset in memory.frames(stack, 0)
        ]
        for thread, stack in memory.stacks().items()
    }


def read_as(monkeypatch: pytest.MonkeyPatch, pid: int, words: list[int]) -> Stacks | None:
    """Return the stacks of a process as if it had published these words; None if it is refused."""
    pread = os.pread
    size = finding._MOST_WORDS * finding._WORD
    with monkeypatch.context() as patch:
        patch.setattr(finding.os, "pread", lambda *where: packed(words) if where[1] == size else pread(*where))
        memory = None
        try:
            memory = opened(pid)
            return None if memory is None else stacks_of(memory)
        except (OSError, NoStackError, UnknownPythonError, UnreadableError):
            return None
        finally:
            if memory is not None:
                memory.close()


def right_of(pid: int) -> tuple[Stacks, list[int]]:
    """Return the stacks of a process, and the words that a newer version would publish in the newest known order."""
    memory = opened(pid)
    assert memory is not None

    def at_rest() -> Stacks:
        with suppress(UnreadableError):  # the first reading finds code that has no place in a stack
            found = stacks_of(memory)
            if sorted(frames[-1][2] for frames in found.values()) == [9, 14]:
                return found
        return {}

    right = until(at_rest, "both threads to sleep")
    assert right
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as file:
        begin = os.pread(file.fileno(), finding._MOST_WORDS * finding._WORD, memory._runtime)
    memory.close()
    _, _, _, *words = struct.unpack(f"<{finding._MOST_WORDS}Q", begin)
    found: dict[str, dict[str, int]] = {}
    name = ""
    for text, word in zip(finding._ORDERS[memory.version].split(), words, strict=False):
        name = text.partition(".")[0] if "." in text else name
        found.setdefault(name, {})[text.rpartition(".")[2]] = word
    return right, words_of(NEWER, found)


@pytest.mark.process
class TestNewer:
    """A stand-in for a Python that is newer than this reader."""

    def test_same_order(self, running: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch) -> None:
        """A newer version that kept the order is read, and nothing of it is certain."""
        right, words = right_of(running.pid)

        assert not TriedMemory.is_certain
        assert [name for name, *_ in right[running.pid]] == ["<module>", "Model.forward"]
        assert read_as(monkeypatch, running.pid, words) == right

    @pytest.mark.long
    def test_another_order(self, running: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch) -> None:
        """No two fields that are swapped give a wrong stack, nor a field that is inserted or removed."""
        right, kept = right_of(running.pid)
        for at in range(3, len(kept)):
            orders = [[*kept[:at], *kept[at + 1 :]]]
            orders += [[*kept[:at], word, *kept[at:]] for word in (0, 8, 64, 72, 1 << 12, kept[at - 1])]
            for other in range(at + 1, len(kept)):
                words = list(kept)
                words[at], words[other] = words[other], words[at]
                orders.append(words)
            for words in orders:
                found = read_as(monkeypatch, running.pid, words) or {}
                assert found.items() <= right.items(), words
