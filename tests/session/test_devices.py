from __future__ import annotations

import io
from array import array
from math import isnan, nan
from typing import Any

import pytest

from nncftools.analysis.peaks import UNKNOWN, Bracket, Column, Figures, Timeline
from nncftools.analysis.session import Session, add_allocator, measure_device, read_allocator
from nncftools.session.model import Device, Mark, OwnMemory, Process
from nncftools.session.nesting import find_device, take_allocated
from nncftools.session.recording import session_from
from nncftools.session.samples import columns_in_use, columns_of
from tests import made_up
from tests.made_up import END, journal

MEMORY, USED, BUSY = "device_memory@nvidia0", "device_used@nvidia0", "device_busy@nvidia0"


def known(column: array[float]) -> dict[int, float]:
    """Return the values that are known, by row."""
    return {row: value for row, value in enumerate(column) if not isnan(value)}


class TestColumns:
    def test_in_the_sample_before(self) -> None:
        """A reading is in the sample before it; the others do not know it. One before the first sample is in that."""
        placed = columns_of([0.1, 0.5, 1.0], [(0.0, {MEMORY: 4}), (0.5, {MEMORY: 6}), (1.7, {MEMORY: 7})])

        assert known(placed[MEMORY]) == {0: 4, 1: 6, 2: 7}

    def test_several_in_one_sample(self) -> None:
        """Of memory the largest counts, of anything else the last."""
        placed = columns_of([0.0, 1.0], [(0.2, {MEMORY: 6, BUSY: 90}), (0.7, {MEMORY: 5, BUSY: 10})])

        assert (known(placed[MEMORY]), known(placed[BUSY])) == ({0: 6}, {0: 10})

    def test_unknown(self) -> None:
        """An unknown value is no 0; its column is there."""
        placed = columns_of([0.0, 1.0], [(0.2, {MEMORY: None, USED: 3})])

        assert (known(placed[MEMORY]), known(placed[USED])) == ({}, {0: 3})

    def test_without_a_sample(self) -> None:
        """A run that ended before the first sample has columns without values."""
        assert columns_of([], [(0.2, {MEMORY: 5})]) == {MEMORY: array("d")}


class TestUnused:
    def test_unused(self) -> None:
        """A device of which the run held nothing is not in the samples; that its peak is 0 is known."""
        readings = [
            (0.0, {MEMORY: 0, USED: 3, BUSY: 9, "device_memory@nvidia1": 0}),
            (0.5, {"device_memory@nvidia1": 5}),
        ]
        kept, unused = columns_in_use([0.0, 1.0], readings)

        assert list(kept) == ["device_memory@nvidia1"]
        assert unused == {MEMORY}

    def test_unknown_is_not_unused(self) -> None:
        """Where it was unknown for a while what the run held, what everyone held is kept."""
        kept, unused = columns_in_use([0.0, 1.0], [(0.0, {MEMORY: 0, USED: 3}), (0.5, {MEMORY: None, USED: 4})])

        assert (list(kept), unused) == ([MEMORY, USED], set())

    def test_others_use_it(self) -> None:
        """What everyone does with a device, of which the run held nothing in any memory, is not kept."""
        used, of_npu = "device_used@npu0", "device_memory@npu0.system"

        assert columns_in_use([0.0], [(0.0, {used: 3, "device_busy@npu0": 5})]) == ({}, set())
        assert list(columns_in_use([0.0], [(0.0, {of_npu: 0, used: 3})])[0]) == []
        assert list(columns_in_use([0.0], [(0.0, {used: 3}), (0.5, {of_npu: 4, used: 7})])[0]) == [used, of_npu]


class TestSession:
    def test_of_a_journal(self) -> None:
        """Readings become columns with peaks; what is known of devices is a list of its own."""
        facts = {"device": "nvidia0", "model": "X", "uuid": "GPU-1", "memory": 80}
        lines: list[Any] = [
            {"device": facts},
            [0.5, 100],
            {"devices": {"at_s": 0.7, "values": {MEMORY: 50, USED: 70, BUSY: 30.0}}},
            [1.0, 100],
            {"device": {**facts, "missing": "why"}},
        ]
        session = Session.of(session_from(io.BytesIO(journal(*lines, END)), "run"))

        assert session.devices == [Device(device="nvidia0", model="X", uuid="GPU-1", memory=80, missing="why")]
        assert session.samples.metrics == ["rss", MEMORY, USED, BUSY]
        assert (session.peaks[MEMORY].low, session.peaks[MEMORY].at_s) == (50, 0.5)

    def test_unused_device(self) -> None:
        """A session of a run that used no device has no column of it."""
        lines: list[Any] = [[0.5, 100], {"devices": {"at_s": 0.2, "values": {MEMORY: 0, USED: 70}}}, END]
        session = Session.of(session_from(io.BytesIO(journal(*lines)), "run"))

        assert (session.samples.metrics, session.peaks[MEMORY].low) == (["rss"], 0)

    @pytest.mark.parametrize(
        "values",
        [
            {MEMORY: -1},
            {MEMORY: 1e30},
            {"rss": 5},
            {f"device_used@{number}": 1 for number in range(501)},
            {MEMORY: "5"},
        ],
    )
    def test_damaged(self, values: dict[str, object]) -> None:
        """A reading with a figure that cannot be, or with other columns, costs only itself."""
        lines: list[Any] = [[0.5, 100], {"devices": {"at_s": 0.2, "values": values}}, END]
        session = Session.of(session_from(io.BytesIO(journal(*lines)), "run"))

        assert session.samples.metrics == ["rss"]
        assert session.warnings == ["1 line of the journal could not be read: line 5"]


class TestNamed:
    def test_by_uuid(self) -> None:
        """Torch numbers the devices that it may see; the UUID tells which one it means."""
        devices = [Device(device="nvidia0", uuid="GPU-a"), Device(device="nvidia1", uuid="GPU-b")]

        assert (find_device("cuda0", "b", devices), find_device("cuda0", "c", devices)) == ("nvidia1", "cuda0")

    def test_instance(self) -> None:
        """Torch names an instance of a GPU (MIG) by its UUID without the prefix of NVML."""
        devices = [Device(device=f"nvidia0.mig{number}", uuid=f"MIG-{number}-a") for number in range(2)]

        assert find_device("cuda0", "1-a", devices) == "nvidia0.mig1"

    def test_without_uuid(self) -> None:
        """An old torch names no UUID: a single device is the one; of several it stays unknown which."""
        one, two = Device(device="nvidia0"), Device(device="nvidia1")

        assert [find_device("cuda0", "", of) for of in ([one], [one, two], [])] == ["nvidia0", "cuda0", "cuda0"]


def own(held: int | None, most: int = 0, device: str = "nvidia0") -> OwnMemory:
    """Return what a process read at a mark."""
    return OwnMemory(rss=1, devices=None if held is None else {device: (held, most)})


def mark(start: OwnMemory, end: OwnMemory, start_s: float = 0.2, end_s: float = 0.8, pid: int = 100) -> Mark:
    """Return an operation."""
    return Mark(name="Export", start_s=start_s, end_s=end_s, pid=pid, own_start=start, own_end=end)


class TestAllocated:
    def test_mark_that_rose(self) -> None:
        """Where the allocator's own mark rose during an operation, its peak is exact."""
        figures = read_allocator(mark(own(3, 9), own(5, 12)), 0.8, "nvidia0")

        assert figures == Figures(3, 5, Bracket(12, 12, 0.2, 0.8))

    def test_mark_that_did_not_rise(self) -> None:
        """Otherwise the peak is at least what was held at both ends, and at most the mark."""
        figures = read_allocator(mark(own(3, 9), own(5, 9)), 0.8, "nvidia0")

        assert figures == Figures(3, 5, Bracket(5, 9, 0.2, 0.8))

    def test_mark_that_was_reset(self) -> None:
        """Where the program has reset the mark, the peak is at least what was reached since."""
        figures = read_allocator(mark(own(5, 30), own(6, 20)), 0.8, "nvidia0")

        assert figures == Figures(5, 6, Bracket(20, None, 0.2, 0.8))

    def test_before_torch_began(self) -> None:
        """A process that marked before torch used the device held nothing there."""
        assert read_allocator(mark(own(None), own(5, 7)), 0.8, "nvidia0") == Figures(0, 5, Bracket(7, 7, 0.2, 0.8))

    def test_not_read(self) -> None:
        """What marked from outside read nothing."""
        assert read_allocator(Mark(name="x", start_s=0.0), 1.0, "nvidia0") is None

    def test_least_of_the_device(self) -> None:
        """A process holds at least what its allocator gave out; a larger sample counts more."""
        of_allocator = Figures(0, 5, Bracket(7, 7, 0.2, 0.8))

        assert add_allocator(UNKNOWN, of_allocator) == Figures(
            None, 5, Bracket(7, None, 0.2, 0.8), end_is_estimate=True
        )
        sampled = Figures(1, 9, Bracket(9, None, 0.5, 0.5))
        assert (add_allocator(sampled, of_allocator), add_allocator(sampled, None)) == (sampled, sampled)

    def test_reading_after_the_end(self) -> None:
        """A reading soon after the end of an operation is not part of it, and one after its start is not its start."""
        column = Column(Timeline([0.1, 0.6, 1.1]), [1.0, 5.0, 9.0])
        figures = measure_device(MEMORY, Mark(name="x", start_s=0.58), 1.08, column=column, incomplete=())

        assert figures == Figures(1, 5, Bracket(5, None, 0.6, 0.6))

    def test_everyone(self) -> None:
        """The same is true of what everyone holds; a sample that the end of an operation triggers is not part of it."""
        used = {"rss": [1] * 4, USED: [3, 5, 9, 9], MEMORY: [1] * 4, "time_s": [0.0, 0.6, 1.1, 1.6]}
        session = made_up.session(used, marks=[Mark(name="x", start_s=0.58, end_s=1.09, pid=100)])

        assert session.operations[0].of(USED).peak_low == 5

    def test_reading_long_before(self) -> None:
        """Of a device whose driver stopped answering, what was read before an operation says nothing of it."""
        column = Column(Timeline([0.1]), [1.0])
        of = Mark(name="x", start_s=0.5)

        assert measure_device(MEMORY, of, 0.9, column=column, incomplete=["nvidia0"]) == UNKNOWN
        assert measure_device(MEMORY, of, 0.9, column=column, incomplete=()) == Figures(1, 1)

    def test_silence(self) -> None:
        """What was read before a driver fell silent is known of an operation that ends soon after it only."""
        column = Column(Timeline([0.0, 0.5, 1.0]), [1.0, 1.0, 7.0])

        assert measure_device(MEMORY, Mark(name="x", start_s=1.1), 1.9, column=column, incomplete=()) == Figures(7, 7)
        assert measure_device(MEMORY, Mark(name="x", start_s=1.1), 4.0, column=column, incomplete=()) == UNKNOWN
        assert measure_device(MEMORY, Mark(name="x", start_s=3.0), 4.0, column=column, incomplete=()) == UNKNOWN

    def test_program_without_torch(self) -> None:
        """That torch has given out nothing says nothing of what a process holds."""
        of = mark(own(None), own(None))

        assert add_allocator(UNKNOWN, read_allocator(of, 0.8, "nvidia0")) == UNKNOWN

    def test_columns_of_marks(self) -> None:
        """What processes read at their marks is a column: the sum of those that use one device; its peak is a mark."""
        marks = [mark(own(None), own(5, 20), end_s=0.6), mark(own(2, 2), own(3, 3), start_s=0.7, end_s=0.9, pid=7)]
        session = made_up.session({"rss": [1, 1, 1], MEMORY: [nan, 30, 30]}, marks=marks)
        take_allocated(session)
        peak = session.peaks["device_allocated@nvidia0"]

        assert known(session.samples["device_allocated@nvidia0"]) == {1: 8, 2: 3}  # the first process ends at 1.0 s
        assert (peak.low, peak.low_from, peak.rose_to_s) == (20, "high_water_mark", 0.6)

    @pytest.mark.parametrize("is_same_pid", [True, False])
    def test_processes_that_ended(self, *, is_same_pid: bool) -> None:
        """What a process held that has ended is not in the sum any more, also where the next one has its PID."""
        pids = [7, 7, 7] if is_same_pid else [7, 8, 9]
        of = [mark(own(None), own(10, 10), at, at + 0.05, pid) for pid, at in zip(pids, (0.1, 0.3, 0.5), strict=True)]
        session = made_up.session({"rss": [1] * 8, "time_s": [at / 10 for at in range(8)]}, marks=of)
        session.processes = [
            Process(id=number, pid=pid, end_s=at)
            for number, (pid, at) in enumerate(zip(pids, (0.2, 0.4), strict=False))
        ]
        take_allocated(session)

        assert session.peaks["device_allocated@nvidia0"].low == 10
        assert [*known(session.samples["device_allocated@nvidia0"]).values()] == [10, 0, 10, 0, 10]

    def test_nothing_left(self) -> None:
        """A mark that says nothing of a device that its process used before says that nothing is left there."""
        marks = [mark(own(3, 3), own(3, 3), 0.1, 0.3), mark(own(None), own(None), 0.5, 0.7)]
        session = made_up.session({"rss": [1] * 8, "time_s": [at / 10 for at in range(8)]}, marks=marks)
        take_allocated(session)

        assert [*known(session.samples["device_allocated@nvidia0"]).values()] == [3, 3, 0]

    @pytest.mark.parametrize(("most", "peak", "low_from"), [(40, 5, "sampled"), (50, 50, "high_water_mark")])
    def test_before_the_recording(self, most: int, peak: int, low_from: str) -> None:
        """What torch reached before a program began to record itself is no peak of the recording."""
        of = [mark(own(3, 40), own(5, most))]
        session = made_up.session({"rss": [1] * 3}, marks=of, attached_to=100)
        take_allocated(session)

        assert session.peaks["device_allocated@nvidia0"].low == peak
        assert session.peaks["device_allocated@nvidia0"].low_from == low_from
