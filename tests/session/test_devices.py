from __future__ import annotations

import io
from array import array
from math import isnan, nan
from typing import Any

import pytest

from nncftools.analysis.peaks import UNKNOWN, Bracket, Column, Figures, Timeline
from nncftools.analysis.session import Session, add_allocator, measure_device, read_allocator
from nncftools.session.model import Device, Mark, OwnMemory
from nncftools.session.nesting import find_device, take_allocated
from nncftools.session.recording import session_from
from nncftools.session.samples import columns_in_use, columns_of
from tests import made_up
from tests.made_up import END, journal

MEMORY, USED, BUSY = "device_memory@nvidia0", "device_used@nvidia0", "device_busy@nvidia0"


def known(column: array[float]) -> dict[int, float]:
    """Return the values that are known, by row."""
    return {row: value for row, value in enumerate(column) if not isnan(value)}


@pytest.mark.parametrize(
    "times, readings, expected",
    [
        ([0.1, 0.5, 1.0], [(0.0, {MEMORY: 4}), (0.5, {MEMORY: 6}), (1.7, {MEMORY: 7})], {MEMORY: {0: 4, 1: 6, 2: 7}}),
        (
            [0.0, 1.0],
            [(0.2, {MEMORY: 6, BUSY: 90}), (0.7, {MEMORY: 5, BUSY: 10})],
            {MEMORY: {0: 6}, BUSY: {0: 10}},
        ),
        ([0.0, 1.0], [(0.2, {MEMORY: None, USED: 3})], {MEMORY: {}, USED: {0: 3}}),
        ([], [(0.2, {MEMORY: 5})], {MEMORY: {}}),
    ],
    ids=["in the sample before", "several in a sample", "unknown", "no sample"],
)
def test_columns(
    times: list[float], readings: list[tuple[float, dict[str, float | None]]], expected: dict[str, dict[int, float]]
) -> None:
    """A reading is in the sample before it. Of memory the largest of a sample counts, of anything else the last."""
    assert {name: known(column) for name, column in columns_of(times, readings).items()} == expected


OTHER, NPU, NPU_USED = "device_memory@nvidia1", "device_memory@npu0.system", "device_used@npu0"


@pytest.mark.parametrize(
    "readings, kept, unused",
    [
        ([{MEMORY: 0, USED: 3, BUSY: 9, OTHER: 0}, {OTHER: 5}], [OTHER], {MEMORY}),
        ([{MEMORY: 0, USED: 3}, {MEMORY: None, USED: 4}], [MEMORY, USED], set()),
        ([{NPU_USED: 3, "device_busy@npu0": 5}], [], set()),
        ([{NPU: 0, NPU_USED: 3}], [], {NPU}),
        ([{NPU_USED: 3}, {NPU: 4, NPU_USED: 7}], [NPU_USED, NPU], set()),
    ],
    ids=["unused", "unknown is not unused", "others use it", "unused NPU", "used NPU"],
)
def test_columns_in_use(readings: list[dict[str, float | None]], kept: list[str], unused: set[str]) -> None:
    """A device of which the run held nothing is not in the samples, whatever others do with it."""
    found = columns_in_use([0.0, 1.0], [(number / 2, values) for number, values in enumerate(readings)])

    assert ([*found[0]], found[1]) == (kept, unused)


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


@pytest.mark.parametrize(
    "uuid, devices, expected",
    [
        ("b", {"nvidia0": "GPU-a", "nvidia1": "GPU-b"}, "nvidia1"),
        ("c", {"nvidia0": "GPU-a", "nvidia1": "GPU-b"}, "cuda0"),
        ("1-a", {"nvidia0.mig0": "MIG-0-a", "nvidia0.mig1": "MIG-1-a"}, "nvidia0.mig1"),
        ("", {"nvidia0": None}, "nvidia0"),
        ("", {"nvidia0": None, "nvidia1": None}, "cuda0"),
        ("", {}, "cuda0"),
    ],
)
def test_name(uuid: str, devices: dict[str, str | None], expected: str) -> None:
    """The UUID tells which device torch means; without one, a single device is it."""
    assert find_device("cuda0", uuid, [Device(device=name, uuid=of) for name, of in devices.items()]) == expected


def own(held: int | None, most: int = 0, device: str = "nvidia0") -> OwnMemory:
    """Return what a process read at a mark."""
    return OwnMemory(rss=1, devices=None if held is None else {device: (held, most)})


def mark(start: OwnMemory, end: OwnMemory, start_s: float = 0.2, end_s: float = 0.8, pid: int = 100) -> Mark:
    """Return an operation."""
    return Mark(name="Export", start_s=start_s, end_s=end_s, pid=pid, own_start=start, own_end=end)


class TestAllocated:
    @pytest.mark.parametrize(
        "start, end, expected",
        [
            (own(3, 9), own(5, 12), Figures(3, 5, Bracket(12, 12, 0.2, 0.8))),
            (own(3, 9), own(5, 9), Figures(3, 5, Bracket(5, 9, 0.2, 0.8))),
            (own(5, 30), own(6, 20), Figures(5, 6, Bracket(20, None, 0.2, 0.8))),
            (own(None), own(5, 7), Figures(0, 5, Bracket(7, 7, 0.2, 0.8))),
        ],
        ids=["the mark rose", "the mark did not rise", "the program reset the mark", "before torch began"],
    )
    def test_of_a_mark(self, start: OwnMemory, end: OwnMemory, expected: Figures) -> None:
        """The peak of an operation is exact where the allocator's own mark rose in it, and has bounds otherwise."""
        assert read_allocator(mark(start, end), 0.8, "nvidia0") == expected

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

    @pytest.mark.parametrize(
        "times, values, span, silent, expected",
        [
            ([0.1, 0.6, 1.1], [1.0, 5.0, 9.0], (0.58, 1.08), (), Figures(1, 5, Bracket(5, None, 0.6, 0.6))),
            ([0.1], [1.0], (0.5, 0.9), ("nvidia0",), UNKNOWN),
            ([0.1], [1.0], (0.5, 0.9), (), Figures(1, 1)),
            ([0.0, 0.5, 1.0], [1.0, 1.0, 7.0], (1.1, 1.9), (), Figures(7, 7)),
            ([0.0, 0.5, 1.0], [1.0, 1.0, 7.0], (1.1, 4.0), (), UNKNOWN),
            ([0.0, 0.5, 1.0], [1.0, 1.0, 7.0], (3.0, 4.0), (), UNKNOWN),
        ],
        ids=["readings after its ends", "silent driver", "before", "soon after the last", "ends later", "later"],
    )
    def test_readings(
        self,
        times: list[float],
        values: list[float],
        span: tuple[float, float],
        silent: tuple[str, ...],
        expected: Figures,
    ) -> None:
        """A reading after an end is not part of an operation; where a driver fell silent, nothing is known after it."""
        of = Mark(name="x", start_s=span[0])

        assert (
            measure_device(MEMORY, of, span[1], column=Column(Timeline(times), values), incomplete=silent) == expected
        )

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

    @pytest.mark.parametrize("most, peak, low_from", [(40, 5, "sampled"), (50, 50, "high_water_mark")])
    def test_before_the_recording(self, most: int, peak: int, low_from: str) -> None:
        """What torch reached before a program began to record itself is no peak of the recording."""
        of = [mark(own(3, 40), own(5, most))]
        session = made_up.session({"rss": [1] * 3}, marks=of, attached_to=100)
        take_allocated(session)

        assert session.peaks["device_allocated@nvidia0"].low == peak
        assert session.peaks["device_allocated@nvidia0"].low_from == low_from
