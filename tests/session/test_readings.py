from __future__ import annotations

import io
import time
from typing import Any

import pytest

from nncftools.session.model import Host, LateReadings, OwnMemory, Process
from nncftools.session.readings import HeldLines, Holdings, Reading, keep, rss_error
from nncftools.session.recording import session_from
from nncftools.session.session import Session
from tests.conftest import HANGING_S
from tests.made_up import END, MIB, journal, mib, process, session

OWN, CHILD, OTHER = 100, 101, 102
ALONE = Reading(rss=50 * MIB, descendants=[])


def line(from_s: float, to_s: float, *rss: list[int]) -> dict[str, Any]:
    """Return what the sampler wrote at a mark; sizes are in MiB."""
    return {"from_s": from_s, "to_s": to_s, "rss": [[one[0], *(size * MIB for size in one[1:])] for one in rss]}


def holdings(*lines: dict[str, Any], processes: list[Process] | None = None, children: bool = True) -> Holdings:
    """Return what was held in a run of a process, by default without others."""
    of = session(processes=processes or [process()])
    keep(of, HeldLines(lines, children))  # type: ignore[arg-type] # made-up lines
    return Holdings(of)


def tree(found: OwnMemory | None) -> tuple[int | None, int | None, int | None]:
    """Return what the tree held and its bounds, in MiB."""
    assert found is not None
    sizes = (found.tree, found.tree_low, found.tree_high)
    first, low, high = (None if size is None else size // MIB for size in sizes)
    return first, low, high


class TestItself:
    """The process that marks, and its descendants, which it reads."""

    def test_alone(self) -> None:
        """A process without others held what it read of itself."""
        assert tree(holdings().at(0.3, OWN, ALONE)) == (50, None, None)

    def test_children(self) -> None:
        """What its descendants held is added, also of a process that no sample shows."""
        reading = Reading(rss=50 * MIB, descendants=[(CHILD, 30 * MIB), (999, 7 * MIB)], listed=True)
        of = holdings(processes=[process(), process(1, parent=0)])

        assert tree(of.at(0.3, OWN, reading)) == (87, None, None)

    def test_child_that_begins_after_the_mark(self) -> None:
        """A child that the reading lacks did not live yet, although the kernel's ticks of 10 ms say that it did."""
        child = process(1, parent=0, start_s=0.29, counted_s=0.31, samples=1)
        of = holdings(line(0.2, 0.301, [1, 400]), processes=[process(), child])

        assert tree(of.at(0.3, OWN, ALONE)) == (50, None, None)
        assert (of.begun_s, of.ended_s) == ({1: 0.3}, {})

    def test_child_that_ends_before_the_mark(self) -> None:
        """A child that the reading lacks had ended, although the sampler noticed that later."""
        child = process(1, parent=0, end_s=0.35, counted_s=0.0, samples=1)
        of = holdings(line(0.2, 0.301, [1, 400]), processes=[process(), child])

        assert tree(of.at(0.3, OWN, ALONE)) == (50, None, None)
        assert (of.begun_s, of.ended_s) == ({}, {1: 0.3})

    def test_grandchild_of_a_child_that_is_gone(self) -> None:
        """Where a child is absent and lives on, its children are absent, too."""
        family = [process(), process(1, parent=0, start_s=0.295), process(2, parent=1, start_s=0.299)]
        of = holdings(line(0.2, 0.31, [1, 400], [2, 9]), processes=family)

        assert tree(of.at(0.3, OWN, ALONE)) == (50, None, None)

    def test_orphan(self) -> None:
        """A process that a sample shows lives on where its parent has just ended, and is no descendant any more."""
        family = [process(), process(1, parent=0, start_s=0.28, end_s=0.32)]
        orphan = process(2, parent=1, start_s=0.285, counted_s=0.29, samples=9)
        of = holdings(line(0.29, 0.31, [2, 9]), processes=[*family, orphan])

        assert tree(of.at(0.3, OWN, ALONE)) == (59, 50, 59)
        assert of.ended_s == {}

    def test_crowd(self) -> None:
        """Where the process could not read its descendants, they count as others do."""
        of = holdings(line(0.2, 0.301, [1, 400, 390, 410]), processes=[process(), process(1, parent=0)])

        assert tree(of.at(0.3, OWN, Reading(rss=50 * MIB))) == (450, 440, 460)

    def test_without_children(self) -> None:
        """In a recording of the command alone, neither a child's own memory nor that of descendants counts."""
        of = holdings(children=False)
        reading = Reading(rss=50 * MIB, descendants=[(CHILD, 30 * MIB)])

        assert tree(of.at(0.3, OWN, reading)) == (50, None, None)
        assert of.at(0.3, CHILD, ALONE) == OwnMemory(rss=50 * MIB)

    def test_nothing_read(self) -> None:
        """A mark without a reading, from a process beside others that nothing is known of, says nothing."""
        assert holdings().at(0.3, None, Reading()) is None


class TestOthers:
    """Processes that a mark does not read: the sample after it says what they held."""

    TWO = (process(), process(2))

    def test_certain(self) -> None:
        """An entry without bounds is exact."""
        of = holdings(line(0.2, 0.301, [2, 30]), processes=[*self.TWO])

        assert tree(of.at(0.3, OWN, ALONE)) == (80, None, None)

    def test_bounds(self) -> None:
        """An entry with bounds makes the sum a bracket, unless they are within noise."""
        wide = holdings(line(0.2, 0.301, [2, 30, 20, 45]), processes=[*self.TWO])
        close = holdings(line(0.2, 0.301, [2, 30, 30, 31]), processes=[*self.TWO])

        assert tree(wide.at(0.3, OWN, ALONE)) == (80, 70, 95)
        assert tree(close.at(0.3, OWN, ALONE)) == (80, None, None)

    def test_unchanged(self) -> None:
        """A process that a line does not name held what it held in the line before."""
        of = holdings(line(0.0, 0.1, [2, 30]), line(0.2, 0.301), processes=[*self.TWO])

        assert tree(of.at(0.3, OWN, ALONE)) == (80, None, None)

    def test_late_sample(self) -> None:
        """A sample that began after another one says nothing of a mark before both."""
        lines = [line(0.0, 0.1, [2, 30]), line(0.5, 0.6, [2, 90])]
        known = [process(), process(2, end_s=None, high_water_mark=100 * MIB)]

        assert tree(holdings(*lines, processes=[*self.TWO]).at(0.3, OWN, ALONE)) == (80, 50, None)
        assert tree(holdings(*lines, processes=known).at(0.3, OWN, ALONE)) == (80, 50, 150)

    def test_after_the_last_line(self) -> None:
        """After the last line, a process held what it held last, or nothing, or all it ever held."""
        known = [process(), process(2, end_s=None, high_water_mark=100 * MIB)]
        of = holdings(line(0.0, 0.1, [2, 30]), processes=known)

        assert tree(of.at(0.9, OWN, ALONE)) == (80, 50, 150)

    def test_fresh(self) -> None:
        """A process that began within a tick of the mark may not have begun."""
        of = holdings(line(0.2, 0.301, [2, 30]), processes=[process(), process(2, start_s=0.295)])

        assert tree(of.at(0.3, OWN, ALONE)) == (80, 50, 80)

    @pytest.mark.parametrize(("read_s", "expected"), [(None, (80, None, None)), (0.4, (80, 50, 150))])
    def test_end_during_a_late_reading(self, read_s: float | None, expected: tuple[int, ...]) -> None:
        """A process that was gone when a late sample was read to its end may have ended before the mark."""
        of = session(processes=[process(), process(2, end_s=0.39, high_water_limit=100 * MIB)])
        if read_s is not None:
            of.late = LateReadings(from_s=[0.301], to_s=[read_s])
        keep(of, HeldLines([line(0.0, 0.1, [2, 30]), line(0.2, 0.301)]))  # type: ignore[list-item] # made-up lines

        assert tree(Holdings(of).at(0.3, OWN, ALONE)) == expected

    def test_mark_from_outside(self) -> None:
        """A mark of a shell is all others: the sample that it triggers."""
        of = holdings(line(0.2, 0.301, [0, 50], [2, 30, 20, 45]), processes=[*self.TWO])

        assert tree(of.at(0.3, None, Reading())) == (80, 70, 95)

    def test_too_many_for_a_line(self) -> None:
        """Where a line has no entries, the sum is that of the sample after the mark, with what is certain below."""
        of = holdings({"from_s": 0.2, "to_s": 0.5, "rss": None}, processes=[*self.TWO])

        assert tree(of.at(0.3, OWN, ALONE)) == (300, 50, None)

    def test_no_line(self) -> None:
        """A recording without such lines, as by psutil, knows only what the process read of itself."""
        assert holdings(processes=[*self.TWO]).at(0.3, OWN, ALONE) == OwnMemory(rss=50 * MIB)

    def test_order_does_not_matter(self) -> None:
        """Marks may come in any order."""
        family = [process(), process(2, start_s=0.4, end_s=0.8)]
        of = holdings(line(0.0, 0.1), line(0.4, 0.501, [2, 30]), line(0.8, 0.9, [2, 0]), processes=family)

        assert [tree(of.at(at_s, OWN, ALONE))[0] for at_s in (0.5, 0.05, 0.5, 0.85, 0.05)] == [80, 50, 80, 50, 50]


def test_reused_pid() -> None:
    """A PID stands for the process that had begun last."""
    first = process(1, pid=7, end_s=0.2)
    second = process(2, pid=7, start_s=0.5)
    of = holdings(
        line(0.0, 0.101, [0, 9], [1, 400]), line(0.5, 0.601, [0, 9], [2, 300]), processes=[process(), first, second]
    )

    assert tree(of.at(0.1, 7, ALONE)) == (59, None, None)
    assert tree(of.at(0.6, 7, ALONE)) == (59, None, None)


@pytest.mark.parametrize("entry", [[], [0], [0, 5, 3], [0, 5, 3, 9, 9], [7, 5], [0, -5], [0, -5, -9, -7]])
def test_damaged_line(entry: list[int]) -> None:
    """A line of marks that is damaged ends nothing, and adds nothing to what the process read itself."""
    held = {"held": {"from_s": 0.0, "to_s": 0.6, "rss": [entry]}}
    of = session_from(io.BytesIO(journal([0.0, 5], [0.5, 7], held, END)), "run")

    assert tree(Holdings(of).at(0.55, OWN, ALONE)) == (50, None, None)
    Holdings(of).at(0.55, None, Reading())


@pytest.mark.long
def test_fifty_thousand_marks() -> None:
    """Time grows with the number of marks and of the processes that live, not with all that ever lived."""
    number, most = 50_000, 300
    length_s = 1 / most
    processes = [process(), *(process(1 + of, start_s=of * length_s, end_s=(of + 1) * length_s) for of in range(most))]
    lines = [line(place / number, (place + 0.5) / number, [1 + place * most // number, 30]) for place in range(number)]
    of: Holdings = holdings(*lines, processes=processes)
    began_s = time.process_time()
    found = [of.at(place / number, OWN, ALONE) for place in range(number)]

    assert len(found) == number
    assert time.process_time() - began_s < HANGING_S


@pytest.mark.parametrize("first", [0, 2_999], ids=["a chain", "a circle"])
def test_many_generations(first: int) -> None:
    """Thousands of generations, and parents of a damaged journal that are a circle, take no more time than others."""
    number = 3_000
    family = [process(), process(1, parent=first), *(process(of, parent=of - 1) for of in range(2, number))]
    of = holdings(line(0.0, 0.6), processes=family)
    began_s = time.process_time()
    found = [of.at(0.5, OWN, ALONE) for _ in range(10)]

    assert tree(found[0])[0] == (50 if first == 0 else 300)
    assert time.process_time() - began_s < HANGING_S


def test_session_without_a_journal() -> None:
    """A session that was loaded from a file has no lines: marks of a process alone are known."""
    of: Session = session({"rss": mib(1, 2)})

    assert tree(Holdings(of).at(0.1, OWN, ALONE)) == (50, None, None)


class TestAround:
    """The most that all other processes held between a mark and the samples around it."""

    def around(self, *rss: list[int], reading: Reading = ALONE, to_s: float = 0.5, **fields: Any) -> tuple[Any, Any]:  # noqa: ANN401 — any field of a process
        """Return it in MiB for a mark at 0.3 s beside one other process, between samples at 0.0 and 0.5 s."""
        known = {"samples": 9, "counted_s": 0.0, "high_water_limit": 100 * MIB}
        other = process(2, **{**known, **fields})
        found = holdings(line(0.0, to_s, *rss), processes=[process(samples=9), other]).at(0.3, OWN, reading)
        assert found is not None
        before, after = found.others_before, found.others_after
        return before if before is None else before // MIB, after if after is None else after // MIB

    def test_bounds(self) -> None:
        """Between the samples a process held at most what the line says, not its high-water mark."""
        assert self.around([2, 30]) == (30, 30)
        assert self.around([2, 30, 20, 45]) == (45, 45)

    def test_unknown(self) -> None:
        """It is unknown where the line does not cover the time, or says nothing."""
        assert self.around([2, 30], to_s=0.4) == (30, None)
        assert self.around([2, 30], high_water_limit=None, counted_s=0.4) == (None, None)

    def test_new(self) -> None:
        """A process that the sample before does not contain can have held all it ever did."""
        assert self.around([2, 30], counted_s=0.5) == (100, 100)

    @pytest.mark.parametrize("read", [[], [(102, 0)]], ids=["reaped", "zombie"])
    def test_child_that_has_ended(self, read: list[tuple[int, int]]) -> None:
        """A child that the process did not find, or without memory, held nothing after the mark."""
        reading = Reading(rss=50 * MIB, descendants=read)

        assert self.around([2, 0], reading=reading, parent=0, end_s=0.4) == (100, 0)

    def test_child_that_has_not_begun(self) -> None:
        """A child that the process did not find, and a later sample shows, held nothing before the mark."""
        assert self.around([2, 30], parent=0, start_s=0.295, counted_s=0.5) == (0, 100)


def linux(release: str, cpus: int | None = 128, machine: str = "x86_64") -> Host:
    """Return a machine with Linux."""
    return Host(name="box", system="Linux", release=release, machine=machine, cpus=cpus)


@pytest.mark.parametrize(
    ("host", "error"),
    [
        (linux("6.1.0-28-amd64"), 0),
        (linux("6.2.0"), 256 * 128 * 4096),
        (linux("6.8.0-45-generic"), 256 * 128 * 4096),
        (linux("6.8.0-45-generic", 4), 32 * 4 * 4096),
        (linux("6.8.0-45-generic-64k", machine="aarch64"), 256 * 128 * 65536),
        (linux("6.8.0", machine="ppc64le"), 256 * 128 * 65536),
        (linux("6.6.98"), 256 * 128 * 4096),
        (linux("6.6.99"), 0),
        (linux("6.12.38"), 256 * 128 * 4096),
        (linux("6.12.39-1.el10"), 0),
        (linux("6.15.7"), 0),
        (linux("6.16.0"), 0),
        (linux("6.16"), 0),
        (linux("7.0.1"), 0),
        (linux("5.14.0"), 0),
        (linux("6.8.0", None), 0),
        (linux("strange"), 0),
        (Host(), 0),
        (Host(system="Darwin", release="6.8.0", cpus=128), 0),
    ],
)
def test_rss_error(host: Host, error: int) -> None:
    """RSS is off by a batch of pages for each CPU, from Linux 6.2 to where /proc was made exact again."""
    assert rss_error(host) == error


HELD_ON_MANY_CORES_ALONE = Reading(rss=200 * MIB, descendants=[], listed=True)


def machine(cpus: int, release: str = "6.8.0") -> Host:
    """Return a machine whose kernel leaves out a batch of pages for each CPU."""
    return Host(system="Linux", release=release, cpus=cpus)


def recorded(host: Host, *processes: Process) -> Session:
    """Return a session of a journal that says of marks that nothing changed."""
    of = session({"rss": mib(200, 200, 200)}, processes=list(processes) or [process()], host=host)
    keep(of, HeldLines([{"from_s": 0.0, "to_s": 0.1, "rss": [[1, 50 * MIB]]}, {"from_s": 0.1, "to_s": 0.5, "rss": []}]))
    return of


def at_mark(of: Session, reading: Reading = HELD_ON_MANY_CORES_ALONE) -> OwnMemory:
    """Return what the tree held at 0.4 s, when the first process marked."""
    found = Holdings(of).at(0.4, 100, reading)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("host", "bounds"),
    [
        (machine(2), (None, None)),
        (machine(64, "6.16.0"), (None, None)),
        (machine(64), (168 * MIB, 232 * MIB)),
        (machine(256), (0, 712 * MIB)),
    ],
    ids=["few cores", "an exact kernel", "many cores", "more than there is"],
)
def test_what_the_kernel_may_leave_out(host: Host, bounds: tuple[int | None, int | None]) -> None:
    """Where RSS itself may be off by more than 1 % or 1 MiB, what a process reads is known within bounds only."""
    found = at_mark(recorded(host))

    assert (found.tree, found.tree_low, found.tree_high) == (200 * MIB, *bounds)


def test_of_each_process() -> None:
    """Each process with memory may be off by as much."""
    of = recorded(machine(64), process(), process(1, parent=None))
    found = at_mark(of)

    assert (found.tree, found.tree_low, found.tree_high) == tuple(mib(250, 186, 314))


def test_a_child_that_was_read() -> None:
    """A child that the marking process read counts once, exactly."""
    of = recorded(machine(2), process(), process(1, parent=0))
    found = at_mark(of, Reading(rss=200 * MIB, descendants=[(101, 30 * MIB)], listed=True))

    assert (found.tree, found.tree_low) == (230 * MIB, None)
