from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

from rich.console import Console

from nncftools.render import markdown, summary_json, text
from nncftools.render.peak_lines import verdict_lines
from nncftools.render.view import View
from nncftools.session.model import Exit
from nncftools.units import MemoryUnit
from tests.limits.deaths import COUNTED, KILLED, NO_KILLS, child, counted, limit, run

if TYPE_CHECKING:
    from rich.console import RenderableType

CONCLUSION = "The command work (pid 100) was killed by the kernel: its control group ran out of memory. (certain)"


def shown(renderable: RenderableType) -> str:
    """Return what a terminal of 80 columns shows, as one line."""
    stream = io.StringIO()
    Console(file=stream, width=80, highlight=False, color_system=None).print(renderable)
    return " ".join(stream.getvalue().split())


def of_a_death() -> dict[str, str]:
    """Return the lines about a command that the kernel killed in its group, by heading."""
    session = run(KILLED, oom_kills=[counted()], memory_limits=[limit(310)], control_groups=COUNTED)
    return dict(verdict_lines(session, MemoryUnit.MiB))


def test_conclusion_comes_first() -> None:
    """The first line is a sentence, and says how sure it is."""
    assert next(iter(of_a_death().items())) == ("Verdict", CONCLUSION)


def test_what_was_held() -> None:
    """RSS at the last sample and its share of the limit are named."""
    assert of_a_death()["held"] == "RSS 200 MiB at 0.500 s; 65 % of 310 MiB (control group)"


def test_evidence() -> None:
    """Each piece of evidence is named with its source."""
    evidence = of_a_death()["evidence"]

    assert "oom_kill of /sys/fs/cgroup/memory/job rose by 1 between 0.800 s and 1.00 s" in evidence
    assert "the limit is set by /sys/fs/cgroup/memory/job/memory.limit_in_bytes" in evidence


def test_what_it_was_not() -> None:
    """A death that has another reason says that it was not for want of memory."""
    lines = dict(verdict_lines(run(KILLED, totals=NO_KILLS), MemoryUnit.MiB))

    assert lines["not"] == "by the kernel: it killed nothing of the run for want of memory; for want of memory"


def test_name_at_the_start() -> None:
    """The name of a program keeps its letters at the start of the sentence."""
    lines = verdict_lines(run(Exit(code=0), child(), oom_kills=[counted()]), MemoryUnit.MiB)

    assert lines[0][1].startswith("worker (pid 101) was killed")


def test_nothing_died() -> None:
    """Without a death there are no lines, in no output."""
    session, view = run(Exit(code=0)), View(metrics=["rss"])

    assert verdict_lines(session, MemoryUnit.MiB) == []
    assert "Verdict" not in shown(text.report(session, view)) + markdown.report(session, view)
    assert json.loads(summary_json.report(session, view))["verdict"] is None


def test_every_output() -> None:
    """Text and Markdown begin with it, before the peak; JSON has its parts."""
    session, view = run(KILLED, oom_kills=[counted()], memory_limits=[limit(310)]), View(metrics=["rss"])
    of_text, of_markdown = shown(text.report(session, view)), markdown.report(session, view)
    of_json = json.loads(summary_json.report(session, view))["verdict"]

    assert of_text.index(f"Verdict {CONCLUSION}") < of_text.index("Peak memory")
    assert of_markdown.index("**Verdict: The command work") < of_markdown.index("**Peak memory")
    assert (of_json["cause"], of_json["process"]["pid"], of_json["limit"]["size"]) == ("out_of_memory", 100, 310 << 20)
