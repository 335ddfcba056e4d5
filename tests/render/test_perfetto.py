from __future__ import annotations

import json
import random
from array import array
from typing import Any

import pytest

from nncftools.analysis.session import Session
from nncftools.render import perfetto
from nncftools.render.perfetto import StackSlice, longest, report, slices_by_thread
from nncftools.render.view import View
from nncftools.session.model import (
    Exit,
    Frame,
    Host,
    Mark,
    Rank,
    RankRun,
    SamplerFacts,
    Series,
    Snapshots,
    StackWindow,
    Start,
    WatchedProcess,
)
from nncftools.session.samples import Samples
from tests.conftest import Run, burner
from tests.made_up import MIB, mib, process, session
from tests.made_up_stacks import window
from tests.render import golden
from tests.render.built_up import LOAD, MACHINERY, MAIN, TRACE, built_up
from tests.render.trace_events import Event, checked

VIEW = View(metrics=["rss"])


def trace(of: Session, **view: Any) -> list[Event]:  # noqa: ANN401 — any field of a view
    """Return the events, all rules checked."""
    return checked(report(of, View(metrics=["rss"], **view)))


def other(of: Session) -> dict[str, Any]:
    """Return the trace's metadata."""
    found: dict[str, Any] = json.loads(report(of, VIEW))["otherData"]
    return found


def slices(events: list[Event]) -> list[tuple[str, int, int]]:
    """Return slices as name, start and duration in milliseconds."""
    return [(event["name"], event["ts"] // 1000, event["dur"] // 1000) for event in events if event["ph"] == "X"]


def counter(events: list[Event], name: str) -> list[tuple[int, dict[str, float]]]:
    """Return the points of a counter as milliseconds and values."""
    return [(event["ts"] // 1000, event["args"]) for event in events if event["ph"] == "C" and event["name"] == name]


def names(events: list[Event]) -> dict[str, int]:
    """Return the numbers of processes by their names."""
    return {event["args"]["name"]: event["pid"] for event in events if event["name"] == "process_name"}


class TestCounters:
    def test_levels(self) -> None:
        """Memory is in bytes; processes are counted. Each value has its sample's time."""
        events = trace(session({"rss": mib(1, 3, 2), "processes": [1, 2, 1]}))

        assert counter(events, "RSS") == [(0, {"bytes": MIB}), (500, {"bytes": 3 * MIB}), (1000, {"bytes": 2 * MIB})]
        assert counter(events, "Processes") == [(0, {"count": 1}), (500, {"count": 2}), (1000, {"count": 1})]

    def test_rates(self) -> None:
        """CPU time is in busy cores, I/O in bytes per second."""
        columns = {"cpu_user": [0, 1, 1], "cpu_system": [0, 0.25, 0.5], "read_bytes": [0, 0, 100]}
        events = trace(session(columns))

        assert counter(events, "CPU") == [(0, {"cores": 2.5}), (500, {"cores": 0.5}), (1000, {"cores": 0.5})]
        assert counter(events, "CPU system") == [(place, {"cores": 0.5}) for place in (0, 500, 1000)]
        assert counter(events, "Read from storage") == [
            (0, {"bytes/s": 0}),
            (500, {"bytes/s": 200}),
            (1000, {"bytes/s": 200}),
        ]

    def test_cpu_of_another_tool(self) -> None:
        """CPU time that is not split into user and system is one counter."""
        events = trace(session({"cpu": [0, 1]}))

        assert counter(events, "CPU") == [(0, {"cores": 2}), (500, {"cores": 2})]

    def test_unknown_is_left_out(self) -> None:
        """What is not known is no point, and a metric of which nothing is known no counter."""
        events = trace(session({"rss": [1, None, 3], "pss": [None, None, None], "cpu_user": [None, None, None]}))

        assert counter(events, "RSS") == [(0, {"bytes": 1}), (1000, {"bytes": 3})]
        assert {event["name"] for event in events if event["ph"] == "C"} == {"RSS"}

    def test_gap_has_no_rate(self) -> None:
        """Where samples are missing, no rate is made up."""
        of = session({"time_s": [0, 0.5, 5, 5.5], "cpu": [0, 0.5, 4, 4.5]})

        assert [moment for moment, _ in counter(trace(of), "CPU")] == [0, 5000, 5500]

    def test_metric_of_another_version(self) -> None:
        """A metric that is not known is a level with its own name."""
        assert counter(trace(session({"rss": [1], "gpu <b>": [0.5]})), "gpu <b>") == [(0, {"value": 0.5})]

    def test_below_zero(self) -> None:
        """Memory that counts from the first sample may be negative."""
        assert counter(trace(session({"rss": [0, -5]}, from_zero=True)), "RSS")[1] == (500, {"bytes": -5})

    @pytest.mark.long
    def test_many_samples(self) -> None:
        """A counter has at most 20,000 points and keeps the largest and smallest sample; the metadata says so."""
        number = 50_000
        sizes = array("d", (1000 + place % 7 for place in range(number)))
        sizes[43_457], sizes[15_555] = 9999, 1
        time_s = array("d", (place / 2.5 for place in range(number)))
        columns = {"time_s": time_s, "rss": sizes, "cpu": array("d", (place / 5 for place in range(number)))}
        of = session(samples=Samples(columns), duration_s=time_s[-1])
        events = trace(of)
        points = [args["bytes"] for _, args in counter(events, "RSS")]

        assert len(points) <= 20_000
        assert (min(points), max(points)) == (1, 9999)
        assert len(counter(events, "CPU")) <= 10_001
        assert "at most 20,000" in other(of)["points"]
        assert other(of)["rates"] == "means of at least 2 s"


class TestOperations:
    def test_of_the_process_that_did_them(self) -> None:
        """Operations belong to the process that they ran in; if it is unknown, to the run."""
        marks = [
            Mark(name="by hand", start_s=0, end_s=0.5),
            Mark(name="Export", start_s=0.25, end_s=0.75, pid=100),
            Mark(name="trace", start_s=0.5, end_s=0.75, depth=1, pid=100),
            Mark(name="of nobody that was seen", start_s=0.75, end_s=1, pid=999),
        ]
        events = trace(session(marks=marks))
        of_process = [event for event in events if event["pid"] == 100]

        assert slices(of_process) == [("work", 0, 1000), ("Export", 250, 500), ("trace", 500, 250)]
        assert slices([event for event in events if event["pid"] != 100]) == [
            ("run", 0, 1000),
            ("by hand", 0, 500),
            ("of nobody that was seen", 750, 250),
        ]

    def test_overlapping(self) -> None:
        """Operations of one process that overlap have tracks of their own."""
        marks = [
            Mark(name="a", start_s=0, end_s=0.6, pid=100),
            Mark(name="b", start_s=0.4, end_s=0.9, pid=100),
            Mark(name="inside b", start_s=0.5, end_s=0.8, pid=100, depth=1),
            Mark(name="c", start_s=0.6, end_s=1, pid=100),
        ]
        events = trace(session(marks=marks))
        tracks: dict[int, list[str]] = {}
        for event in events:
            if event["ph"] == "X" and event["pid"] == 100:
                tracks.setdefault(event["tid"], []).append(event["name"])

        assert list(tracks.values()) == [["work", "a", "c"], ["b", "inside b"]]
        assert 100 in tracks

    def test_all_depths(self) -> None:
        """The view's depth does not count: all operations are there, every call by itself."""
        marks = [Mark(name=f"{depth}", start_s=0, end_s=1, depth=depth, pid=100) for depth in range(5)]
        calls = [
            Mark(name="call", start_s=0.5 + place / 100, end_s=0.505 + place / 100, depth=5) for place in range(30)
        ]
        found = slices(trace(session(marks=[*marks, *calls]), depth=1))

        assert {"0", "1", "2", "3", "4"} <= {name for name, _, _ in found}
        assert sum(name == "call" for name, _, _ in found) == 30

    def test_figures(self) -> None:
        """An operation has its figures; unknown figures are left out."""
        marks = [Mark(name="Export", start_s=0, end_s=0.5, kind="export", error="ValueError: no", pid=100)]
        events = trace(session({"rss": mib(1, 3, 2)}, marks=marks))
        export = next(event for event in events if event["name"] == "Export")

        assert export["cat"] == "export"
        assert export["args"] == {
            "operation": "Export",
            "error": "ValueError: no",
            "rss_start": MIB,
            "rss_end": 3 * MIB,
            "delta": 2 * MIB,
            "rss_peak": 3 * MIB,
            "rss_start_is_estimate": True,
            "rss_delta_is_estimate": True,
            "holds_peak": True,
        }

    def test_calls_told_together(self) -> None:
        """Calls that the recording grouped have their number, total time and longest time."""
        mark = Mark(name="save", start_s=0, end_s=1, count=50, total_s=0.2, longest_s=0.1, pid=100)
        args = next(event["args"] for event in trace(session(marks=[mark])) if event["name"] == "save")

        assert (args["calls"], args["total_s"], args["longest_s"]) == (50, 0.2, 0.1)


class TestProcesses:
    def test_names_and_lives(self) -> None:
        """Processes have their PIDs and names, and their lives are slices; one that goes on ends with the recording."""
        processes = [
            process(command=["work", "--fast"], exit=Exit(code=3), cpu_s=0.5),
            process(1, parent=0, name="child", start_s=0.25, end_s=None, high_water_mark=MIB),
        ]
        events = trace(session(processes=processes))

        assert names(events) == {"work": 100, "child": 101, "run: run": 102}
        assert slices(events)[1:] == [("work", 0, 1000), ("child", 250, 750)]
        lives = [event["args"] for event in events if event.get("cat") == "process"]
        assert (lives[0]["command"], lives[0]["exit_code"], lives[0]["cpu_s"]) == ("work --fast", 3, 0.5)
        assert (lives[1]["parent"], lives[1]["high_water_mark"]) == (0, MIB)
        assert "exit_code" not in lives[1]

    def test_order(self) -> None:
        """The run comes first, then its processes in the order of their starts."""
        processes = [process(0, name="late", start_s=0.5), process(1, name="early")]
        events = trace(session(processes=processes))
        order = {event["pid"]: event["args"]["sort_index"] for event in events if event["name"] == "process_sort_index"}

        assert sorted(names(events), key=lambda name: order[names(events)[name]]) == ["run: run", "early", "late"]

    def test_a_pid_comes_twice(self) -> None:
        """Two processes with one PID are two, and each has its own operations."""
        processes = [process(0, end_s=0.4), process(1, pid=100, name="second", start_s=0.5)]
        marks = [Mark(name="a", start_s=0.1, end_s=0.2, pid=100), Mark(name="b", start_s=0.6, end_s=0.7, pid=100)]
        events = trace(session(processes=processes, marks=marks))
        by_process = {
            name: [text for text, _, _ in slices([e for e in events if e["pid"] == pid])]
            for name, pid in names(events).items()
        }

        assert by_process == {"run: run": ["run"], "work": ["work", "a"], "second": ["second", "b"]}

    def test_a_pid_on_two_machines(self) -> None:
        """If two processes have one PID at once, their operations belong to the run, not to either process."""
        marks = [Mark(name="Export", start_s=0.25, end_s=0.5, pid=100)]
        events = trace(session(processes=[process(), process(1, pid=100, name="elsewhere")], marks=marks))
        export = next(event for event in events if event["name"] == "Export")

        assert export["pid"] == names(events)["run: run"]

    def test_unknown_pids(self) -> None:
        """Processes of which no PID is known have numbers of their own."""
        events = trace(session(processes=[process(0, pid=None, name=""), process(1, pid=None, name="b")]))

        assert len(set(names(events).values())) == 3

    def test_rss_of_each(self) -> None:
        """A process's own RSS is a counter of its own, nothing from its end on."""
        series = Series(time_s=[0.25, 0.5], rss=mib(1, 2))  # type: ignore[arg-type]
        events = trace(session(processes=[process(end_s=0.75, series=series)]))
        own = [event for event in events if event["pid"] == 100]

        assert counter(own, "RSS") == [(250, {"bytes": MIB}), (500, {"bytes": 2 * MIB}), (750, {"bytes": 0})]

    def test_began_before_the_recording(self) -> None:
        """A process that the run attached to begins with the recording, and has its real start in its arguments."""
        events = trace(session(processes=[process(start_s=-3600.0)], attached_to=100))

        assert slices(events)[1] == ("work", 0, 1000)
        assert next(event for event in events if event["name"] == "work")["args"]["began_s"] == -3600.0

    def test_ranks(self) -> None:
        """Each rank of a merged job has its life and its RSS."""
        ranks = [
            RankRun(name="rank 0", start_s=0, duration_s=1, time_s=[0.0, 0.5], rss=[5, None]),
            RankRun(name="rank 1", host=Host(name="box"), start_s=0.25, duration_s=0.5, exit=Exit(code=1)),
        ]
        events = trace(session(ranks=ranks))
        first, second = (names(events)[name] for name in ("rank 0", "rank 1 on box"))

        rss = counter([event for event in events if event["pid"] == first], "RSS")

        assert rss == [(0, {"bytes": 5}), (1000, {"bytes": 0})]
        assert slices([event for event in events if event["pid"] == second]) == [("rank 1", 250, 500)]


class TestRun:
    def test_peaks(self) -> None:
        """The moment at which each memory metric reached its peak is an instant, with the bracket of the peak."""
        events = trace(session({"rss": mib(100, 300, 200), "pss": [None, None, None]}))
        instants = [event for event in events if event["ph"] == "i"]

        assert [(event["name"], event["ts"], event["s"]) for event in instants] == [
            ("RSS peak 300.0 MiB", 500_000, "p")
        ]
        assert instants[0]["args"] == {
            "sampled": 300 * MIB,
            "at_s": 0.5,
            "low": 300 * MIB,
            "low_from": "sampled",
            "rose_from_s": 0.5,
            "rose_to_s": 0.5,
        }

    def test_facts(self) -> None:
        """The metadata has command, machine, start in UTC and warnings."""
        found = other(session(host=Host(name="box", cpus=2), warnings=["made up"]))

        assert found["command"] == "work --fast"
        assert found["start_utc"].startswith("2026-11-21T07:00:00")
        assert found["host"] == {"name": "box", "cpus": 2}
        assert found["warnings"] == ["made up"]
        assert found["tool"] == "nncf-tools 0.1.0"

    def test_rank(self) -> None:
        """The metadata has the rank, and whether memory counts from an unknown first sample."""
        found = other(session(rank=Rank(number=3), from_zero=True))

        assert (found["rank"]["number"], found["from_zero"]) == (3, True)

    def test_title(self) -> None:
        """The title names the run."""
        assert "run: int4, group 64" in names(trace(session(), title="int4, group 64"))

    def test_nothing_known(self) -> None:
        """A log that knows hardly anything gives a trace without a figure that it does not hold."""
        of = session(
            {"rss": mib(1, 2)},
            command=[],
            name="",
            tool_version="",
            start=Start(),
            host=Host(),
            exit=None,
            sampler=SamplerFacts(),
            processes=[],
            totals={},
        )
        events = trace(of)

        assert {event["ph"] for event in events} == {"M", "X", "i", "C"}
        assert slices(events) == [("unknown command", 0, 500)]
        assert next(event["args"] for event in events if event["ph"] == "X") == {}
        assert {"start_utc", "host", "warnings"}.isdisjoint(other(of))

    def test_odd_texts(self) -> None:
        """A name can contain any character; long names are shortened."""
        odd = '</script>\x00\x1b[31m"\\\n語' * 50
        of = session(
            name=odd, command=[odd], processes=[process(name=odd, command=[odd])], marks=[Mark(name=odd, start_s=0)]
        )

        assert all(len(event["name"]) <= 200 for event in trace(of))

    def test_stacks_with_odd_texts(self) -> None:
        """A function and a file can have any name, or none."""
        odd = Frame('</script>\x00\x1b[31m"\\\n語' * 50, "\x00;" * 300, -1)

        assert all(len(event["name"]) <= 200 for event in trace(built_up(([odd, Frame("", "", 0)], 100))))

    def test_golden_keeps_the_rules(self) -> None:
        """The trace whose text is kept as it is keeps all rules."""
        assert checked(report(golden.run(), golden.VIEW))


class TestStacks:
    def test_tracks(self) -> None:
        """The stacks of a thread are nested slices on a track of their own in its process."""
        events = trace(built_up(([MAIN, LOAD], 200), ([MAIN, TRACE], 100), processes=[process(end_s=2.0)]))
        stacks = [event for event in events if event.get("cat") == "stack"]
        tracks = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}

        assert {tracks[event["tid"]] for event in stacks} == {"Python stacks, thread 100"}
        assert {event["pid"] for event in stacks} == {100}
        assert sorted((event["name"], event["ts"] // 1000, event["dur"] // 1000) for event in stacks) == [
            ("load", 0, 1000),
            ("main", 0, 2000),
            ("trace", 1000, 1000),
        ]
        assert next(event["args"] for event in stacks if event["name"] == "trace") == {
            "place": "torch/jit/_trace.py:455"
        }

    def test_of_a_process_that_is_not_listed(self) -> None:
        """Stacks of a process that the session does not list are in that of the run."""
        of = built_up(([MAIN], 100), processes=[])
        assert of.snapshots is not None
        of.snapshots.processes[0].process = None
        events = trace(of)

        assert {event["pid"] for event in events if event.get("cat") == "stack"} == {names(events)["run: run"]}

    def test_very_many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of very many slices the longest are written."""
        frames = [Frame(f"f{place}", f"{place}.py", 1) for place in range(60)]
        steps = [[MAIN, *(frames[place % 7 :])] if place % 2 else frames for place in range(100)]
        of = built_up(*((list(stack), 0.1) for stack in steps))
        every = sum(event.get("cat") == "stack" for event in trace(of))
        monkeypatch.setattr(perfetto, "MOST_SLICES", 500)

        assert every > 5_000
        assert sum(event.get("cat") == "stack" for event in trace(of)) == 500


@pytest.mark.long
def test_on_the_command_line(nncf_tools: Run) -> None:
    """A real recording becomes a trace with its operations, and each process's own RSS."""
    words = burner("copies", "figures", 30, 2, "rss")
    nncf_tools("monitor", "-q", "--no-plot", "--per-process", "-i", 0.02, "-o", "run.json", "--", *words)
    done = nncf_tools("report", "run.json", "--format", "perfetto", text=False)
    events = checked(done.stdout)

    assert done.returncode == 0
    assert sum(event.get("cat") == "process" for event in events) == 3
    assert sum(event["ph"] == "C" and event["name"] == "RSS" for event in events) > 3


@pytest.mark.parametrize("seed", range(5))
def test_any_operations_nest(seed: int) -> None:
    """Operations of one track are always nested, even if operations overlap, touch or have no duration."""
    pick = random.Random(seed)  # noqa: S311 — made-up data
    marks = []
    for place in range(300):
        start_s = pick.randrange(100) / 100
        marks.append(Mark(name=f"{place}", start_s=start_s, end_s=start_s + pick.randrange(30) / 100, pid=100))

    assert len(slices(trace(session(marks=marks)))) == 302


ONE, OTHER = 7, 8
NEXT_LINE = Frame(MAIN.function, MAIN.file, MAIN.line + 1)
FRAMES = [MAIN, LOAD, TRACE, MACHINERY, NEXT_LINE]
STACKS = ([MAIN], [MAIN, LOAD], [MAIN, MACHINERY, TRACE], [], [NEXT_LINE])


def thread_slices(*windows: StackWindow) -> list[tuple[str, float, float]]:
    """Return the slices of the thread ``ONE``, in order of time."""
    stacks = [[FRAMES.index(frame) for frame in stack] for stack in STACKS]
    watched = WatchedProcess(pid=1, windows=list(windows))
    found = slices_by_thread(watched, Snapshots(frames=FRAMES, stacks=stacks)).get(ONE, [])
    in_order = sorted(found, key=lambda of: (of.from_s, -of.to_s))
    return [(of.name, of.from_s, of.to_s) for of in in_order]


class TestSlices:
    def test_while_on_the_stack(self) -> None:
        """A frame lasts from the moment at which it was first seen to that of the first stack without it."""
        of = window(ONE, (1.0, 1), (2.0, 0), to_s=2.5)

        assert thread_slices(of) == [("main", 1.0, 2.5), ("load", 1.0, 2.0)]

    def test_another_branch(self) -> None:
        """What both stacks share goes on; frames of the import system are left out."""
        assert thread_slices(window(ONE, (1.0, 1), (1.5, 2), to_s=2.0)) == [
            ("main", 1.0, 2.0),
            ("load", 1.0, 1.5),
            ("trace", 1.5, 2.0),
        ]

    def test_another_line(self) -> None:
        """A function at another line is another slice."""
        assert thread_slices(window(ONE, (1.0, 0), (1.5, 4), to_s=2.0)) == [("main", 1.0, 1.5), ("main", 1.5, 2.0)]

    def test_windows(self) -> None:
        """A frame goes on in a window that begins where the one before ended, not in a later one."""
        windows = [window(ONE, (at_s, 0), to_s=at_s + 1.0) for at_s in (1.0, 2.0, 9.0)]

        assert thread_slices(*windows) == [("main", 1.0, 3.0), ("main", 9.0, 10.0)]

    def test_without_stack(self) -> None:
        """A moment at which the thread has no Python frame, or an empty stack, ends all frames."""
        assert thread_slices(window(ONE, (1.0, 0), (1.5, None), (2.0, 3), (2.5, 0), to_s=3.0)) == [
            ("main", 1.0, 1.5),
            ("main", 2.5, 3.0),
        ]

    def test_threads(self) -> None:
        """A thread that never had a Python stack has no slices."""
        watched = WatchedProcess(pid=1, windows=[window(OTHER, (1.0, None), to_s=2.0)])

        assert slices_by_thread(watched, Snapshots()) == {}

    def test_longest(self) -> None:
        """Of too many slices the longest are kept, so that what encloses one is kept with it."""
        every = [StackSlice(Frame(str(length), "", 0), 0.0, length) for length in (1, 3, 2)]

        assert {one.name for one in longest(every, 2)} == {"3", "2"}
