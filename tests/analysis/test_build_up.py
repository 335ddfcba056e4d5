"""Which code memory at a moment belongs to."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nncftools.analysis import build_up
from nncftools.analysis.build_up import (
    NOT_SEEN,
    PROGRAM,
    SEEN,
    SHARED,
    BuildUp,
    at_end,
    held_at_end,
)
from nncftools.session.model import Exit, Frame, LimitReached, Process
from tests.analysis.made_snapshots import Made, by_function, by_kind
from tests.made_up import MIB, mib, session
from tests.made_up_stacks import grown, stack


def by_process(found: BuildUp) -> dict[int | None, dict[str, int]]:
    """Return the bytes of each kind, by process."""
    sums: dict[int | None, dict[str, int]] = {}
    for part in found.parts:
        kinds = sums.setdefault(part.process, {})
        kinds[part.kind] = kinds.get(part.kind, 0) + part.size
    return sums


@pytest.fixture
def made() -> Made:
    """Return snapshots without a process."""
    return Made()


def file_sizes(found: BuildUp) -> dict[str, int]:
    """Return the bytes of files of each innermost function."""
    sums: dict[str, int] = {}
    for part in found.parts:
        assert 0 <= part.file_size <= part.size
        name = part.stack[-1].function if part.stack else part.kind
        sums[name] = sums.get(name, 0) + part.file_size
    return sums


def test_pages_of_files(made: Made) -> None:
    """Each rise has the share of the bytes of files that came in it; a fall takes the highest levels."""
    watched = made.process("0@0 100@1 100@2 400@3 300@4", "main>load@0 main>trace@1.5 main>end@4")
    watched.shared = [0, 90, 90, 120, 110]

    assert file_sizes(made.build_up(3.0)) == {"load": 90, "trace": 30}
    assert file_sizes(made.build_up(2.5)) == {"load": 90, "trace": 15}
    assert file_sizes(made.build_up(4.0)) == {"load": 90, "trace": 20}


@pytest.mark.parametrize(
    "shared, expected",
    [([0, 100, 0], 0), ([0, 100, 50], 50), ([0, 100, 400], 400), ([0, 900, 900], 400), ([], 0)],
)
def test_pages_that_were_copied(made: Made, shared: list[int], expected: int) -> None:
    """There are never more bytes of files than at the moment: a process may write to its pages, or unmap a file."""
    made.process("0@0 100@1 400@2", "load@0 load@1 load@2").shared = shared
    found = made.build_up(2.0)

    assert sum(file_sizes(found).values()) == expected


def test_pages_of_files_without_stacks(made: Made) -> None:
    """What a program without Python holds, and what a process held when it was first seen, has its pages of files."""
    program = made.process("0@0 40@0 100@1")
    program.is_native = True
    copy = made.process("0@0 40@0 100@1", "load@0", inherited=30)
    program.shared = copy.shared = [0, 20, 20]
    sizes = {(part.process, part.kind): part.file_size for part in made.build_up(1.0).parts}

    assert sizes == {(0, PROGRAM): 20, (1, SHARED): 0, (1, NOT_SEEN): 20, (1, SEEN): 0}


def test_certain_up_to_a_change(made: Made) -> None:
    """Around a change of the stack, only the frames that both share are certain; the likeliest stack is named."""
    made.process("0@0 100@1", "main>load>read@0 main>load>copy@0.5", every_s=0.01)

    found = made.build_up(1.0)

    assert by_kind(found) == {SEEN: 100}
    assert {part.certain for part in found.parts} == {2, 3}
    assert by_function(found) == pytest.approx({"read": 49, "copy": 51}, abs=1)
    assert sum(by_function(found, certain=True).values()) == 99  # nobody knows which of both took the other


def test_long_after_the_last_window(made: Made) -> None:
    """What rises more than a second after the last window was not seen."""
    watched = made.process("0@0 100@1 100@3 500@5", "main@0")
    watched.windows = [replace(watched.windows[0], time_s=[at_s for at_s in watched.windows[0].time_s if at_s <= 1.0])]

    found = made.build_up(5.0)

    assert by_function(found, certain=True) == pytest.approx({"main": 100}, abs=1)
    assert found.sum_of(NOT_SEEN) == 400


def test_what_a_parent_cannot_share(made: Made) -> None:
    """A forked process shares no more than its parent held from the fork on; its first stack took the rest, likely."""
    made.process("0@0 300@0.05 100@0.08 100@0.2 500@0.3", "main@0 main@0.3")
    made.process("0@0.15 130@0.15 130@0.2", "work@0.15 work@0.2", inherited=130)
    made.processes[1].parent, made.processes[1].start_s = 0, 0.1

    assert by_kind(made.build_up(0.2))[SHARED] == 100
    assert by_process(made.build_up(0.2))[1] == {SHARED: 100, SEEN: 30}
    assert by_function(made.build_up(0.2), certain=True).get("work", 0) == 0


def test_what_a_parent_that_nobody_watched_cannot_share(made: Made) -> None:
    """Of a parent that the helper never saw, the largest RSS that the sampler saw is the bound."""
    made.process("0@0.1 150@0.1 150@0.2", "work@0.1 work@0.2", inherited=150)
    made.processes.append(Process(id=9, peak_rss=60, high_water_mark=70))
    made.processes[0].parent = 9

    assert by_process(made.build_up(0.2))[0] == {SHARED: 70, NOT_SEEN: 80}


def test_missed_copy_of_a_parent_that_grows(made: Made) -> None:
    """A forked copy that the helper missed shares at most what its parent held from the fork until it was counted."""
    made.process("0@0 100@0.1 200@0.2 200@0.3", "main@0 main@0.3")
    copy = Process(id=7, parent=0, start_s=0.1, counted_s=0.25, end_s=0.35, first_rss=290, forked_copy=True)
    made.processes.append(copy)

    assert by_process(made.build_up(0.25, 490))[7] == {SHARED: 200, NOT_SEEN: 90}


def test_parts_sum_to_the_peak(made: Made) -> None:
    """Memory that only the sampler saw belongs to the process that rose last; what is above the peak is taken off."""
    made.process("0@0 100@0.1 100@0.3", "a@0 a@0.1")
    made.process("0@0 100@0.2 100@0.3", "b@0 b@0.2")

    assert by_function(made.build_up(0.2, 260)) == {"a": 100, "b": 160}
    assert by_function(made.build_up(0.2, 260, process=0)) == {"a": 160, "b": 100}
    assert by_function(made.build_up(0.2, 130)) == {"a": 100, "b": 30}
    assert by_function(made.build_up(0.2, 70)) == {"a": 70}


def test_highest_moment_of_a_span(made: Made) -> None:
    """Of the moments between which the peak was reached, the one counts at which most was held."""
    made.process("0@0 100@0.5 400@0.6 50@0.7", "a@0 b@0.55")

    found = made.build_up(0.5, 400, to_s=0.7)

    assert found.at_s == 0.6
    assert by_function(found) == {
        "a": 220,
        "b": 180,
    }  # what rose between the readings at 0.54 and 0.55 is likely the later's


@pytest.mark.long
def test_very_many_processes(made: Made) -> None:
    """Thousands of processes above the peak are no trouble."""
    for _ in range(1_500):
        made.process("0@0 10@0.1 10@0.5", "a@0 a@0.1")

    assert made.build_up(0.1, 100).size == 100


FIRST, SECOND = stack("/a/b.py:9 main", "/a/b.py:1 first"), stack("/a/b.py:9 main", "/a/b.py:2 second")


def test_stack_of_the_last_rise() -> None:
    """The top of a build-up is the stack in which memory last rose, with all bytes of that stack."""
    found = build_up.of_peak(grown((FIRST, 100), (SECOND, 50)))

    assert found is not None
    assert found.top is not None
    assert (found.top.stack, found.top.kind, found.top.size) == (SECOND, SEEN, 50 * MIB)


def compiling(made: Made) -> Made:
    """Fill in a program that starts two compilers, which Python waits for."""
    made.process("0@0 100@1 100@5", "main>load@0 main>build>wait@1.5")
    for number in (1, 2):
        native = made.process("0@2 10@2 400@3 400@5")
        native.is_native = True
        made.processes[number].parent = 0
        made.processes[number].name = "cc1plus"
    return made


def test_programs_without_python(made: Made) -> None:
    """What a program without Python holds belongs to it; it has the stack of the Python program that waits for it."""
    found = compiling(made).build_up(4.0)
    programs = [part for part in found.parts if part.kind == PROGRAM]

    assert by_kind(found) == {PROGRAM: 800, SEEN: 100}
    assert {(part.program, part.stack[-1].function, part.process) for part in programs} == {
        ("cc1plus", "wait", 1),
        ("cc1plus", "wait", 2),
    }


def growth(made: Made, from_s: float, to_s: float) -> BuildUp:
    """Return what grew between two moments."""
    of = session({"rss": mib(0, 1)}, snapshots=made.snapshots, processes=made.processes)
    found = build_up.at(of, to_s, since_s=from_s)
    assert found is not None
    assert sum(part.size for part in found.parts) == found.size
    return found


class TestAtEnd:
    """A program takes 300 bytes until 0.5 s and ends at 1.0 s."""

    @pytest.mark.parametrize(
        "levels, report, expected",
        [
            ("300@1 0@1", None, 300),
            ("300@0.9 80@0.95 20@1 0@1", None, 300),
            ("300@0.6 30@0.65 30@1 0@1", None, 30),
            ("300@0.98 700@0.99 0@1", None, 700),
            ("300@1 0@1", (0.97, 30), 30),
            ("300@1 0@1", (1.2, 30), 300),
        ],
        ids=[
            "killed",
            "torn down by Python",
            "freed before",
            "rises at the end",
            "reported, freed unseen",
            "report of another process",
        ],
    )
    def test_moment(self, made: Made, levels: str, report: tuple[float, int] | None, expected: int) -> None:
        """It is when Python reported the end of its code, else the highest level just before the process was gone."""
        watched = made.process(f"0@0 300@0.5 {levels}", "main>load@0")
        if report is not None:
            watched.take_end_of_code(*report)
        found = at_end(made.session())

        assert found is not None
        assert found.size == pytest.approx(expected, abs=1)
        assert by_function(found) == {"load": found.size}

    def test_report(self, made: Made) -> None:
        """Levels that were read before a report do not come back after it; pages of files are at most all of them."""
        watched = made.process("0@0 300@0.5 300@1 0@1", "load@0")
        watched.shared = [0, 40, 40, 0]
        watched.take_end_of_code(0.9, 30)

        assert (watched.time_s, watched.rss) == ([0, 0.5, 0.9, 1.0, 1.0], [0, 300, 30, 30, 0])
        assert watched.shared == [0, 40, 30, 30, 0]
        assert watched.apart_s == [0, 0, pytest.approx(0.4), 0, 0]

    def test_last_program(self, made: Made) -> None:
        """The last Python counts that no other one began: neither a shell around it nor a helper that outlives it."""
        made.process("0@0 5@0.1 5@9 0@9")
        made.process("0@0 300@0.5 300@1 0@1", "earlier@0")
        made.process("0@1 200@1.5 200@2 0@2", "main@1")
        made.process("0@1.5 10@1.6 10@3 0@3", "tracker@1.5")
        for process, parent in zip(made.processes, (None, 0, 0, 2), strict=True):
            process.parent = parent
        found = at_end(made.session())

        assert found is not None
        assert by_function(found) == {"main": 200, "tracker": 10}

    def test_without_python(self, made: Made) -> None:
        """Of a program without Python, it is when the last process was gone."""
        made.process("0@0 300@0.5 300@1 0@1").is_native = True
        found = at_end(made.session())

        assert found is not None
        assert by_kind(found) == {PROGRAM: 300}

    def test_unknown(self, made: Made) -> None:
        """Where the helper saw no process, the answer is not known."""
        assert at_end(made.session()) is None
        assert held_at_end(made.session()) is None


class TestGrowth:
    def test_levels_above(self, made: Made) -> None:
        """What grew are the levels above the RSS at the first moment; what was freed meanwhile does not count."""
        made.process("0@0 100@1 300@2 50@3 200@4", "a@0 b@1 c@2 d@3")

        found = by_function(growth(made, 0.5, 2.0))

        assert found.pop("c", 0) <= 2
        assert found == pytest.approx({"a": 50, "b": 200}, abs=1)
        assert by_function(growth(made, 1.0, 4.0)) == {"d": 100}


ENDED = Exit(code=0)
WARNED = LimitReached(at_s=0.6, rss=300, limit=200, action="warn")


@pytest.mark.parametrize(
    "fields, report_s, expected",
    [
        ({"exit": ENDED}, 0.9, 200),
        ({"exit": Exit(code=7)}, 0.9, 200),
        ({"exit": ENDED, "limit_reached": WARNED}, 0.9, 200),
        ({"exit": ENDED, "limit_reached": replace(WARNED, action="kill")}, 0.9, None),
        ({"exit": Exit(signal=15)}, 0.9, None),
        ({}, 0.9, None),
        ({"exit": ENDED}, None, None),
        ({"exit": ENDED, "snapshots": None}, 0.9, None),
    ],
    ids=["success", "failure", "above a limit", "ended by us", "killed", "went on", "no report", "no stacks"],
)
def test_held_at_end(made: Made, fields: dict[str, object], report_s: float | None, expected: int | None) -> None:
    """A program that ended by itself held what it reported, without imports and without pages counted twice."""
    watched = made.process("0@0 100@0.3 300@0.6 300@1 0@1", "main>find@0 main>load@0.3")
    made.snapshots.frames[1] = Frame("_find_and_load", "<frozen importlib._bootstrap>", 1)
    if report_s is not None:
        watched.take_end_of_code(report_s, 300)
    made.process("0@0.2 50@0.2 50@1 0@1", inherited=50)
    made.processes[1].parent = 0
    of = made.session()
    for name, value in fields.items():
        setattr(of, name, value)

    found = held_at_end(of)

    assert found == (None if expected is None else pytest.approx(expected, abs=5))
