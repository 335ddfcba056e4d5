from __future__ import annotations

from nncftools.render.perfetto import StackSlice, longest, slices_by_thread
from nncftools.session.model import Frame, Look, Snapshots, ThreadLook, WatchedProcess
from tests.render.built_up import LOAD, MACHINERY, MAIN, TRACE

ONE, OTHER = 7, 8
STACKS = ([MAIN], [MAIN, LOAD], [MAIN, MACHINERY, TRACE], [])


def slices(*looks: tuple[float, int | None], thread: int = ONE, end_s: float = 0.0) -> list[tuple[str, float, float]]:
    """Return the slices of a thread that was seen at these times in the stack of this number, in order of time."""
    found = slices_by_thread(*seen(*looks, end_s=end_s)).get(thread, [])
    in_order = sorted(found, key=lambda one: (one.from_s, -one.to_s))
    return [(one.name, one.from_s, one.to_s) for one in in_order]


def seen(*looks: tuple[float, int | None], end_s: float = 0.0) -> tuple[WatchedProcess, Snapshots]:
    """Return a process with such looks."""
    frames = [MAIN, LOAD, TRACE, MACHINERY]
    every = [Look(time_s, [ThreadLook(ONE, stack)]) for time_s, stack in looks]
    watched = WatchedProcess(pid=1, looks=every, time_s=[0.0, end_s], rss=[1, 1])
    return watched, Snapshots(frames=frames, stacks=[[frames.index(frame) for frame in stack] for stack in STACKS])


class TestSlices:
    def test_until_the_next_look(self) -> None:
        """A frame lasts from the look that first saw it to the one that no longer did."""
        assert slices((1.0, 1), (1.5, 1), (2.0, 0), (2.5, 0)) == [("main", 1.0, 2.5), ("load", 1.0, 2.0)]

    def test_another_branch(self) -> None:
        """What both stacks share goes on; frames of the import system are left out."""
        assert slices((1.0, 1), (1.5, 2), (2.0, 2)) == [
            ("main", 1.0, 2.0),
            ("load", 1.0, 1.5),
            ("trace", 1.5, 2.0),
        ]

    def test_long_silence(self) -> None:
        """Between two looks that are far apart, a stack lasts only 0.6 s, even if both show the same."""
        assert slices((1.0, 0), (3.0, 0), (3.5, 0)) == [("main", 1.0, 1.6), ("main", 3.0, 3.5)]

    def test_without_stack(self) -> None:
        """A look at which the thread has no Python frame, or an empty stack, ends all frames."""
        assert slices((1.0, 0), (1.5, None), (2.0, 3), (2.5, 0), end_s=9.0) == [("main", 1.0, 1.5), ("main", 2.5, 3.1)]

    def test_threads(self) -> None:
        """A thread that never had a Python stack has no slices."""
        watched, snapshots = seen((1.0, None))

        assert slices_by_thread(watched, snapshots) == {}

    def test_looks(self) -> None:
        """A slice says how many looks saw the frame."""
        watched, snapshots = seen((1.0, 0), (1.5, 1), (2.0, 1))

        assert {one.name: one.looks for one in slices_by_thread(watched, snapshots)[ONE]} == {"main": 3, "load": 2}

    def test_longest(self) -> None:
        """Of too many slices the longest are kept, so that what encloses one is kept with it."""
        every = [StackSlice(Frame(str(length), "", 0), 0.0, length, 1) for length in (1, 3, 2)]

        assert {one.name for one in longest(every, 2)} == {"3", "2"}
