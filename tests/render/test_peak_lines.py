from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from nncftools.analysis.session import Session
from nncftools.journal.writing import GROUP, THROTTLE
from nncftools.render import summary_json, text
from nncftools.render.peak_lines import (
    DrawnLimit,
    choose_drawn_limit,
    explain_peak,
    explain_verdict,
    join_lines,
    write_limit,
)
from nncftools.render.stacks import percents
from nncftools.render.view import View
from nncftools.session.model import (
    Exit,
    Host,
    LimitReached,
    MemoryLimit,
    Snapshots,
    WatchedProcess,
)
from nncftools.units import MemoryUnit
from tests.limits.deaths import COUNTED, KILLED, NO_KILLS, child, counted, limit, run
from tests.made_up import MIB, process, session
from tests.made_up_stacks import grown, snapshots, stack, window

if TYPE_CHECKING:
    from rich.console import RenderableType


MAIN = "/a/b.py:9 main"
LOAD, RUN = stack(MAIN, "torch/load.py:1 load"), stack(MAIN, "torch/run.py:2 run")


def lines(of: Session) -> dict[str, str]:
    """Return the lines under the peak by their headings."""
    return dict(sentence.split(": ", 1) for sentence in join_lines(explain_peak(of, MemoryUnit.MiB)))


def test_lines_of_stacks() -> None:
    """The lines say which function ran at the peak, how much was seen, and what was held at the end."""
    found = lines(grown((LOAD, 400), (RUN, 100)))

    assert found == {
        "running": "torch/run.py:2 run, called by a/b.py:9",
        "seen": "100 % of the peak, 100 % certain",
        "still held": "500 MiB at the end (0.980 s): 500 b.py:9 main (torch load)",
    }


def test_recorded_without_stacks() -> None:
    """A session without snapshots has no such lines."""
    assert explain_peak(session(), MemoryUnit.MiB) == []


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (Snapshots(missing="py-spy is not installed"), "none: py-spy is not installed"),
        (Snapshots(processes=[WatchedProcess(pid=1)]), "none: no stack was seen of any process whose memory grew"),
    ],
)
def test_no_stacks(of: Snapshots, expected: str) -> None:
    """If there are no stacks, one line says why."""
    assert explain_peak(session(snapshots=of), MemoryUnit.MiB) == [("stacks", expected)]


def test_several_processes() -> None:
    """If several processes have stacks, the one that grew last is named."""
    one, other = grown((LOAD, 100)), grown((RUN, 200))
    assert one.snapshots is not None
    assert other.snapshots is not None
    (watched,) = other.snapshots.processes
    watched.process = 1
    watched.windows = [window(100, (0.0, 1), to_s=0.5)]
    one.snapshots.frames += other.snapshots.frames
    one.snapshots.stacks.append([2, 3])
    one.snapshots.processes.append(watched)
    watched.time_s = [at_s + 0.001 for at_s in watched.time_s]
    one.processes.append(process(1, name="work\x1b[31mer"))

    assert lines(one)["running"] == ("work\\x1b[31mer (pid 101): torch/run.py:2 run, called by a/b.py:9")


def test_forked_copy() -> None:
    """What a forked process shares with its parent is named as such."""
    of = grown((LOAD, 100), (RUN, 100))
    assert of.snapshots is not None
    watched = of.snapshots.processes[0]
    watched.inherited, watched.rss[:2] = 50 * MIB, [50 * MIB] * 2

    assert lines(of)["seen"] == "75 % of the peak, 75 % certain; 25 % shared with the parent"


def test_not_seen_has_its_reason() -> None:
    """If the last rise was not seen, it says so; the reason why is told once."""
    seen = snapshots([(LOAD, 100), (RUN, 100)], missing="the kernel does not allow it")
    (watched,) = seen.processes
    watched.windows = [window(100, (0.0, 0), to_s=0.5)]
    watched.time_s = [at_s if at_s < 0.5 else at_s + 5 for at_s in watched.time_s]
    found = lines(session({"time_s": watched.time_s, "rss": list(watched.rss)}, snapshots=seen))

    assert found["running"] == "not seen"
    assert found["seen"] == "50 % of the peak, 50 % certain; 50 % not seen: the kernel does not allow it"


@pytest.mark.parametrize(
    ("sizes", "expected"), [((1, 1, 1), [34, 33, 33]), ((995, 5, 0), [100, 0, 0]), ((0, 0), [0, 0]), ((2, 1), [67, 33])]
)
def test_shares_sum_to_100(sizes: tuple[int, ...], expected: list[int]) -> None:
    """Shares of one whole are whole percents that sum to 100."""
    assert percents(sizes) == expected


CONCLUSION = "The command work (pid 100) was killed by the kernel: its control group ran out of memory. (certain)"


def shown(renderable: RenderableType) -> str:
    """Return what a terminal of 80 columns shows, as one line."""
    stream = io.StringIO()
    Console(file=stream, width=80, highlight=False, color_system=None).print(renderable)
    return " ".join(stream.getvalue().split())


def of_a_death() -> dict[str, str]:
    """Return the lines about a command that the kernel killed in its group, by heading."""
    session = run(KILLED, oom_kills=[counted()], memory_limits=[limit(310)], control_groups=COUNTED)
    return dict(explain_verdict(session, MemoryUnit.MiB))


def test_conclusion_comes_first() -> None:
    """The first line is a sentence, and says how sure it is."""
    assert next(iter(of_a_death().items())) == ("Verdict", CONCLUSION)


def test_what_was_held() -> None:
    """RSS at the last sample and its share of the limit are named."""
    assert of_a_death()["held"] == "RSS 200 MiB at 0.500 s; 65 % of 310 MiB (control group)"


def test_evidence() -> None:
    """Each piece of evidence is named with its source."""
    evidence = of_a_death()["evidence"]

    assert "the kernel killed 1 process of /sys/fs/cgroup/memory/job between 0.800 s and 1.00 s" in evidence
    assert "/sys/fs/cgroup/memory/job/memory.limit_in_bytes sets the limit" in evidence


def test_what_it_was_not() -> None:
    """A death that has another reason says that memory had not run out."""
    lines = dict(explain_verdict(run(KILLED, totals=NO_KILLS), MemoryUnit.MiB))

    assert lines["not"] == "by the kernel, which killed no process of the run; because memory ran out"


def test_name_at_the_start() -> None:
    """The name of a program keeps its letters at the start of the sentence."""
    lines = explain_verdict(run(Exit(code=0), child(), oom_kills=[counted()]), MemoryUnit.MiB)

    assert lines[0][1].startswith("worker (pid 101) was killed")


def test_nothing_died() -> None:
    """Without a death there are no lines, in no output."""
    session, view = run(Exit(code=0)), View(metrics=["rss"])

    assert explain_verdict(session, MemoryUnit.MiB) == []
    assert "Verdict" not in shown(text.report(session, view)) + text.markdown_report(session, view)
    assert json.loads(summary_json.report(session, view))["verdict"] is None


def test_every_output() -> None:
    """Text and Markdown begin with the verdict, before the peak; JSON has its parts."""
    session, view = run(KILLED, oom_kills=[counted()], memory_limits=[limit(310)]), View(metrics=["rss"])
    of_text, of_markdown = shown(text.report(session, view)), text.markdown_report(session, view)
    of_json = json.loads(summary_json.report(session, view))["verdict"]

    assert of_text.index(f"Verdict {CONCLUSION}") < of_text.index("Peak memory")
    assert of_markdown.index("**Verdict: The command work") < of_markdown.index("### run: Peak memory")
    assert (of_json["cause"], of_json["process"]["pid"], of_json["limit"]["size"]) == ("out_of_memory", 100, 310 << 20)


VIEW = View(metrics=["rss"])
FILE = "/sys/fs/cgroup/job/memory.max"


def limited(size_mib: float, kind: str = GROUP, **fields: Any) -> Session:  # noqa: ANN401 — any field of a session
    """Return a run with a peak of 300 MiB and a limit."""
    return session(memory_limits=[MemoryLimit(kind=kind, size=int(size_mib * MIB), set_by=FILE)], **fields)


class TestText:
    @pytest.mark.parametrize(("size_mib", "share"), [(400, "75 % of 400 MiB"), (8192, "4 % of 8 GiB")])
    def test_group(self, size_mib: int, share: str) -> None:
        """A share of a control group's limit is told with the file that sets it, however little of it was held."""
        assert write_limit(limited(size_mib)) == f"{share} (control group, set by {FILE})"

    @pytest.mark.parametrize(("size_mib", "expected"), [(400, "75 % of 400 MiB (all of the machine)"), (600, None)])
    def test_machine(self, size_mib: int, expected: str | None) -> None:
        """The machine's memory is a limit only for a run that held more than half of it."""
        assert write_limit(session(host=Host(memory=size_mib * MIB))) == expected

    def test_own_limit(self) -> None:
        """The limit of the recording itself is told as what it is."""
        reached = LimitReached(at_s=0.5, rss=300 * MIB, limit=200 * MIB, action="warn")

        assert write_limit(session(limit_reached=reached)) == "150 % of 200 MiB (--max-memory)"

    def test_throttling(self) -> None:
        """A limit above which processes are only slowed down is named."""
        text = str(write_limit(limited(400, THROTTLE)))
        assert text.startswith("75 % of 400 MiB (control group, memory.high, set by")

    def test_unknown(self) -> None:
        """Without a limit, without a peak, and with memory from an unknown zero there is no share."""
        assert write_limit(session()) is None
        assert write_limit(limited(400, peaks={})) is None
        assert write_limit(limited(400, from_zero=True)) is None

    def test_harmless(self) -> None:
        """The name of a group may be long and hostile."""
        hostile = MemoryLimit(kind=GROUP, size=400 * MIB, set_by="/sys/\x1b[31m" + "x" * 500)
        text = str(write_limit(session(memory_limits=[hostile])))

        assert text.isprintable()
        assert len(text) < 140

    def test_under_the_headline(self) -> None:
        """The limit is the first line under the peak, without stacks, too."""
        assert explain_peak(limited(400), MemoryUnit.MiB) == [("limit", write_limit(limited(400)))]


class TestDrawn:
    def test_near(self) -> None:
        """A limit is drawn when the peak is above half of it; sizes are in the view's unit."""
        assert choose_drawn_limit(limited(400), VIEW) == DrawnLimit(400, "limit", "400 MiB")
        assert choose_drawn_limit(limited(600), VIEW) is None

    def test_machine(self) -> None:
        """The memory of the machine is named as such."""
        found = choose_drawn_limit(session(host=Host(memory=400 * MIB)), View(metrics=["rss"], unit=MemoryUnit.GiB))

        assert found is not None
        assert found == DrawnLimit(pytest.approx(0.390625), "machine", "400 MiB")

    @pytest.mark.parametrize("view", [View(metrics=["pss"]), View(metrics=["rss"], from_zero=True)])
    def test_other_axis(self, view: View) -> None:
        """It is drawn only next to RSS as it is."""
        assert choose_drawn_limit(limited(400), view) is None
