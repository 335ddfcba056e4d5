from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from nncftools.analysis.session import Session
from nncftools.metrics import MEMORY, METRICS
from nncftools.render.text import report
from nncftools.render.view import View
from nncftools.session.model import (
    Exit,
    Host,
    Mark,
    Process,
    Rise,
    SamplerFacts,
    SavedModel,
)
from nncftools.units import MemoryUnit
from tests.made_up import MIB, mib, process, session

GB = 10**9
WIDTH = 80
RSS = mib(100, 300, 200)
SYSTEM = mib(1000, 1300, 1100)
HOSTILE = "\x1b[31mred\x1b]0;title\x07\r\nsecond\tline\u202eevil\x9b\x00"


def run(rss: Sequence[float | None] = RSS, system: Sequence[float | None] = SYSTEM, **fields: Any) -> Session:  # noqa: ANN401 — any field
    """Return a session of both metrics."""
    return session({"rss": rss, "system": system}, **fields)


def printed(of: Session, *, metrics: tuple[str, ...] = ("rss", "system"), **view: Any) -> str:  # noqa: ANN401 — any choice
    """Return the report as an 80-column terminal without colour shows it, without the blanks at the ends of lines."""
    stream = io.StringIO()
    console = Console(file=stream, width=WIDTH, highlight=False, color_system=None)
    console.print(report(of, View(metrics=metrics, **view)))
    return "".join(f"{line.rstrip(' ')}\n" for line in stream.getvalue().split("\n")[:-1])


def row(text: str, label: str) -> list[str]:
    """Return the cells of the table's row that begins with ``label``."""
    (line,) = [line for line in text.splitlines() if line.startswith(label)]
    return line.removeprefix(label).split()


def large(size: int) -> Session:
    """Return a session whose figures all have as many digits as ``size``."""
    processes = [process(high_water_mark=size, peak_rss=size, name="a-process-with-a-long-name-indeed")]
    totals = dict.fromkeys(("read_bytes", "write_bytes", "read_chars", "write_chars"), size * 1000)
    facts = SamplerFacts(cpu_s=12_345.6, peak_rss=50 * MIB, interval_s=0.001, missed=99_999, longest_gap_s=12_345.6)
    figures: dict[str, Any] = {"processes": processes, "totals": totals, "sampler": facts, "duration_s": 99_999.9}
    return run([size // 2, size, size // 3 * 2], [size, size + 1, size + 2], **figures)


def test_memory_table() -> None:
    """The table has peak, its time, final, delta, average and minimum, absolute and from zero."""
    text = printed(run())

    assert row(text, "RSS") == ["300.0", "0.500", "s", "200.0", "+100.0", "200.0", "100.0"]
    assert row(text.partition("System")[0], "  from zero") == ["200.0", "0.500", "s", "100.0", "+100.0", "100.0", "0.0"]
    assert row(text, "System  ")[0] == "1,300.0"


def test_no_row_of_zeros() -> None:
    """What is 0 as written, absolute or above the first sample, has no row; the first metric always has one."""
    text = printed(
        session({"rss": [MIB, MIB], "anon": [MIB, 2 * MIB], "shmem": [0, 4096]}), metrics=("rss", "anon", "shmem")
    )

    assert [line.split("  ")[0] for line in text.splitlines() if line.startswith(("RSS", "Anon", "Shmem"))] == [
        "RSS",
        "Anon",
    ]
    assert text.count("from zero") == 1
    assert "Shmem" in printed(session({"shmem": [0, 4096]}), metrics=("shmem",))


def test_from_zero_replaces_absolute() -> None:
    """With from-zero the table has only figures above the first sample, and says so in their names."""
    text = printed(run(), metrics=("rss",), from_zero=True)

    assert row(text, "RSS from zero")[0] == "200.0"
    assert len([line for line in text.splitlines() if "RSS" in line]) == 1


@pytest.mark.parametrize(
    ("unit", "peak"), [("B", "314,572,800"), ("KiB", "307,200"), ("MB", "314.6"), ("GiB", "0.293")]
)
def test_unit(unit: str, peak: str) -> None:
    """The table is in the unit that was asked for and says which it is."""
    text = printed(run(), metrics=("rss",), unit=MemoryUnit(unit))

    assert f"Memory, {unit} " in text
    assert peak in text.replace("Peak", "").split()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"exit": Exit(code=3)}, "exit status 3"),
        ({"exit": Exit(signal=9)}, "killed by SIGKILL"),
        ({"exit": Exit(signal=250)}, "killed by signal 250"),
        ({"exit": None}, "exit status unknown"),
        ({"exit": None, "attached_to": 77}, "attached to pid 77"),
    ],
)
def test_ending(changes: dict[str, Any], words: str) -> None:
    """The report says how the run ended, as far as that is known; a signal has its name, where it has one."""
    assert words in printed(run(**changes))


def test_nothing_known() -> None:
    """A session of nothing is reported with dashes and the word unknown, not with zeros."""
    text = printed(run([], [], exit=None, host=Host(), sampler=SamplerFacts(), command=[], name="", totals={}))

    assert row(text, "RSS") == ["–"] * 6
    assert text.startswith("Peak memory unknown\ntook 0.000 s\n\nunknown command\n")
    assert "CPU           unknown" in text
    assert "Storage       unknown" in text


def test_a_peak_between_samples() -> None:
    """The peak is the kernel's mark, between the two moments of its rise, and a warning explains it."""
    rise = Rise(from_s=0.5, to_s=0.9, high_water_mark=400 * MIB)
    text = printed(run(processes=[process(high_water_mark=400 * MIB, rises=[rise])]))

    assert "  peak        RSS 400.0 MiB at 07:00:00 (0.500–0.900 s, between two samples)\n" in text
    assert row(text, "RSS")[:2] == ["400.0", "0.500–0.900"]
    assert "! the RSS peak came and went between two samples" in text


def test_warnings_are_repeated() -> None:
    """The session's warnings are at the end, each on its own line."""
    text = printed(run(warnings=["first", "second"]))

    assert text.endswith("\n\n! first\n! second\n")


def test_no_warnings() -> None:
    """Without a reason nothing is warned of."""
    assert "!" not in printed(run())


@pytest.mark.parametrize(("unit", "size"), [("B", 50 * GB), ("KiB", 50 * GB), ("MiB", 4000 * GB), ("GB", 99_999 * GB)])
def test_large_figures_fit_into_80_columns(unit: str, size: int) -> None:
    """In every unit, no figure is cut and no line is broken or longer than the terminal."""
    text = printed(large(size), unit=MemoryUnit(unit))
    table = text[text.index("Memory,") : text.index("CPU")]
    figures = [MemoryUnit(unit).text(figure) for figure in (size, size // 2, size // 3 * 2, size + 1, size + 2)]

    assert max(cell_len(line) for line in text.splitlines()) <= WIDTH
    assert "…" not in table
    assert [figure for figure in figures if figure not in table] == []


@pytest.mark.parametrize(
    "changes",
    [
        {"command": ["python", HOSTILE]},
        {"command": [], "name": HOSTILE},
        {"host": Host(name=HOSTILE)},
        {"warnings": [HOSTILE]},
        {"processes": [process(name=HOSTILE, peak_rss=1)]},
        {"processes": [process(), process(1, name=HOSTILE, end_s=None)]},
    ],
    ids=["command", "name", "host", "warning", "process", "survivor"],
)
def test_nothing_that_a_terminal_acts_on(changes: dict[str, Any]) -> None:
    """Control characters from a file are escaped, so that they neither affect the terminal nor begin a new line."""
    text = printed(run(**changes))

    assert [character for character in text if not character.isprintable() and character != "\n"] == []
    assert [line for line in text.splitlines() if line.startswith("second")] == []


def test_a_hostile_title_and_metric() -> None:
    """Control characters are written out in a title and in the name of a foreign metric, too."""
    text = printed(session({HOSTILE: [1, 2, 3]}), metrics=(HOSTILE,), title=HOSTILE)

    assert [character for character in text if not character.isprintable() and character != "\n"] == []


def test_markup_is_text() -> None:
    """What looks like Rich's markup is printed as it is."""
    text = printed(run(command=["[red]x[/red]"], warnings=["[bold]y"], processes=[process(name="[dim]z", peak_rss=1)]))

    assert [words for words in ("[red]x[/red]", "[bold]y", "[dim]z") if words not in text] == []


def test_a_title_replaces_the_command() -> None:
    """A title replaces the command, and the name of the run in the headline."""
    text = printed(run(), title="My run")

    assert text.startswith("My run: Peak memory 300 MiB")
    assert "\nMy run\n" in text
    assert "work" not in text


def test_a_long_command_is_shortened() -> None:
    """Of a command of thousands of characters the beginning and the end are shown."""
    text = printed(run(command=["python", "x.py", *("word" for _ in range(2_000)), "--last"]))
    _, _, title = text.partition("2026-")[0].replace("\n", "").partition("(0.500 s)")

    assert title.startswith("python x.py word")
    assert "…" in title
    assert title.endswith("--last")
    assert len(title) <= 200


@pytest.mark.parametrize(
    ("processes", "told"), [([], "unknown"), ([process(high_water_mark=None, peak_rss=None)], "1")]
)
def test_processes_of_unknown_size(processes: list[Process], told: str) -> None:
    """When no size is known, processes are only counted; a log that names none leaves their number unknown."""
    text = printed(run(processes=processes))

    assert f"Processes     {told}" in text.splitlines()


def marks_of(*sizes: int) -> list[Process]:
    """Return processes with these high-water marks in MiB."""
    return [process(place, high_water_mark=size * MIB, end_s=None) for place, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("processes", "unit", "bracket"),
    [
        (marks_of(200, 100), MemoryUnit.MiB, None),
        (marks_of(200, 106), MemoryUnit.MiB, None),
        (marks_of(200, 107), MemoryUnit.MiB, "300.0 MiB and 307.0 MiB"),
        (marks_of(200, 190), MemoryUnit.MiB, "300.0 MiB and 390.0 MiB"),
        (marks_of(400, 50), MemoryUnit.MiB, "400.0 MiB and 450.0 MiB"),
        (marks_of(250, 250), MemoryUnit.KiB, "307,200 KiB and 512,000 KiB"),
        ([process(high_water_mark=290 * MIB)], MemoryUnit.MiB, None),
    ],
    ids=["equal", "up to 2 %", "more than 2 %", "wide", "of a spike", "in another unit", "no upper bound"],
)
def test_bracket_of_the_peak(processes: list[Process], unit: MemoryUnit, bracket: str | None) -> None:
    """The report gives the bracket of the real peak if its upper bound is known, and more than 2 % above the lower."""
    lines = printed(run(processes=processes), unit=unit).splitlines()
    expected = [] if bracket is None else [f"RSS peak      between {bracket} (the sum of high-water marks)"]

    assert [line for line in lines if line.startswith("RSS peak")] == expected


def test_short_lived() -> None:
    """Processes in fewer than two samples are counted: their memory may be in no sum."""
    processes = [process(0, peak_rss=300 * MIB, samples=3), process(1, samples=1), process(2, samples=0)]
    text = " ".join(printed(run(processes=processes)).split())

    seen = "3, the largest: work, 300.0 MiB (largest sample); 2 seen in fewer than 2 samples: sums may miss them"
    assert f"Processes {seen} Sampler" in text


@pytest.mark.parametrize(
    "processes",
    [[process(0, samples=1, peak_rss=1)], [process(0, samples=2, peak_rss=1), process(1, samples=2)]],
    ids=["the command alone", "all seen"],
)
def test_not_short_lived(processes: list[Process]) -> None:
    """A command that is itself over soon, or processes that were all seen, are nothing to warn of."""
    assert "fewer than 2 samples" not in printed(run(processes=processes))


def test_all_metrics_fit_into_80_columns() -> None:
    """A report of every memory metric, of figures that were seldom known too, is no wider than the terminal."""
    columns = {name: mib(100, None, 300_000) for name in MEMORY}
    text = printed(session(columns), metrics=MEMORY)

    assert max(cell_len(line) for line in text.splitlines()) <= WIDTH
    assert [METRICS[name].label for name in MEMORY if METRICS[name].label not in text] == []


def test_merged() -> None:
    """The sampler's line counts what was taken, not what is left of it."""
    assert "5,000 samples, interval" in " ".join(printed(run(sampler=SamplerFacts(taken=5_000))).split())


def text_of(of: Session, width: int = 80, **choices: Any) -> str:  # noqa: ANN401 — any choice of a view
    """Return the report as a terminal of ``width`` columns shows it."""
    console = Console(file=io.StringIO(), width=width, highlight=False, color_system=None)
    with console.capture() as captured:
        console.print(report(of, View(["rss"], **choices)))
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def run_of(*marks: Mark, **fields: Any) -> Session:  # noqa: ANN401 — any field
    """Return a session of four seconds that grows to 400 MiB and back, with marks."""
    columns = {
        "rss": mib(100, 100, 400, 200, 200),
        "cpu_user": [0, 1, 2, 3, 4],
        "cpu_system": [0] * 5,
        "read_bytes": mib(0, 10, 10, 10, 10),
        "write_bytes": mib(0, 0, 0, 5, 5),
        "read_chars": mib(0, 20, 20, 20, 20),
        "write_chars": mib(0, 0, 0, 7, 7),
        "time_s": [0, 1, 2, 3, 4],
    }
    return session(columns, marks=list(marks), duration_s=4.0, **fields)


def test_saved_models() -> None:
    """A saved compressed model is listed with the compression parameters from its file."""
    nncf = {"mode": "int4_sym", "ratio": "0.8", "awq": "True", "gptq": "False", "advanced_parameters": "{...}"}
    facts = {"nncf/version": "3", **{f"nncf/weight_compression/{name}": value for name, value in nncf.items()}}
    of = run_of(models=[SavedModel(path="/out/model.xml", saved_s=1, facts=facts)])

    assert "Compressed model.xml: weight_compression, mode int4_sym, ratio 0.8, awq Sampler" in " ".join(
        text_of(of).split()
    )


@pytest.mark.parametrize("view", [{}, {"brief": True}])
def test_hugetlb_pages(view: dict[str, bool]) -> None:
    """Memory in hugetlb pages, which no RSS contains, is in the report, once."""
    of = session(processes=[process(0, name="main", hugetlb=2 << 30), process(1, name="other")])
    text = " ".join(printed(of, metrics=("rss",), **view).split())

    assert text.count("RSS does not include hugetlb pages: main 2.0 GiB") == 1
    assert "hugetlb" not in printed(session(), metrics=("rss",), **view)


@pytest.mark.parametrize("view", [{}, {"brief": True}])
@pytest.mark.parametrize(
    ("dropped_mib", "stall_s", "is_said"), [(3100, 11.6, True), (3100, 0.1, False), (5, 3.0, False)]
)
def test_short_of_memory(view: dict[str, bool], dropped_mib: int, stall_s: float, is_said: bool) -> None:  # noqa: FBT001
    """Where memory was short and pages were read again, one line says that the peak is higher on a larger machine."""
    text = printed(session(totals={"refaults": dropped_mib * MIB, "memory_stall": stall_s}), metrics=("rss",), **view)
    line = (
        "the machine was short of memory: 3.0 GiB were dropped and read again; on a larger machine the peak is higher"
    )

    assert (line in " ".join(text.split())) == is_said


def test_processes_that_mattered() -> None:
    """Those that held or worked most are listed in the order of their starts; the rest is not."""
    of = run_of(
        processes=[
            process(0, name="main", peak_rss=mib(400)[0], cpu_s=1.0),
            process(1, name="compiler", peak_rss=mib(300)[0], cpu_s=0.1, start_s=0.5),
            process(2, name="busy", peak_rss=mib(1)[0], cpu_s=5.0, start_s=0.7),
            process(3, name="tiny", peak_rss=mib(1)[0], cpu_s=0.0),
        ]
    )
    table = text_of(of).partition("Process ")[2]

    assert [line.split()[0] for line in table.splitlines()[1:4]] == ["main", "compiler", "busy"]
    assert "tiny" not in table
