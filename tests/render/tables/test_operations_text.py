from __future__ import annotations

import io
import re
from typing import Any

from rich.console import Console

from nncftools.render.table import NOTE
from nncftools.render.text import report
from nncftools.render.view import View
from nncftools.session.model import Mark, OwnMemory, SavedModel
from nncftools.session.session import Session
from tests.made_up import MIB, mib, process, session


def printed(of: Session, width: int = 80, **choices: Any) -> str:  # noqa: ANN401 — any choice of a view
    """Return the report as a terminal of ``width`` columns shows it."""
    console = Console(file=io.StringIO(), width=width, highlight=False, color_system=None)
    with console.capture() as captured:
        console.print(report(of, View(["rss"], **choices)))
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def run(*marks: Mark, **fields: Any) -> Session:  # noqa: ANN401 — any field
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


def test_timeline_and_figures() -> None:
    """Each operation has its line: number, start, name, duration, growth, peak; and a row of figures."""
    read = OwnMemory(rss=100 * MIB, tree=100 * MIB)
    loading = Mark(name="Model Loading", start_s=0, end_s=1, own_end=read)
    text = printed(run(loading, Mark(name="Compilation", start_s=1, end_s=3, own_start=read)))

    assert "Peak memory  RSS 400.0 MiB at 07:00:02 (2.00 s)  during Compilation\n" in text
    assert "1. 0.000 s Model Loading    (1.00 s)    [0.0 MiB]\n" in text
    assert "2.  1.00 s Compilation      (2.00 s) [+100.0 MiB] <- peak\n" in text
    assert "    3.00 s (nothing marked) (1.00 s)    [0.0 MiB]\n" in text
    assert " 1. 100.0 100.0 100.0    1.00 1.00    10.0     0.0  20.0     0.0\n" in text
    assert " 2. 100.0 200.0 400.0    1.00 1.00     0.0     5.0   0.0     7.0\n" in text
    assert NOTE not in text


def test_bounds() -> None:
    """What is not known more closely is written with its bounds, which one line explains; 80 columns are enough."""
    first = Mark(name="Model Loading", start_s=0, end_s=1, own_end=between(100, 90, 400))
    second = Mark(name="Compilation", start_s=1, end_s=3, own_start=between(100, 90, None))
    text = printed(run(first, second))

    assert "1. 0.000 s Model Loading    (1.00 s) [-10 to +300 MiB]\n" in text
    assert "2.  1.00 s Compilation      (2.00 s)       [≤+110 MiB] <- peak\n" in text
    assert " 1. 100.0 90–400 100.0 " in text
    assert " 2.   ≥90  200.0 400.0 " in text
    assert text.count(NOTE) == 1
    assert max(map(len, text.splitlines())) <= 80


def between(rss: int, low: int, high: int | None) -> OwnMemory:
    """Return a reading that leaves bounds, in MiB."""
    most = None if high is None else high * MIB
    return OwnMemory(rss=rss * MIB, tree=rss * MIB, tree_low=low * MIB, tree_high=most)


def test_depth() -> None:
    """Inner operations are shown, indented, when they are asked for."""
    of = run(Mark(name="a", start_s=0, end_s=4), Mark(name="inner", start_s=1, end_s=2, depth=1))

    assert "inner" not in printed(of).partition("Operations")[2]
    assert "2.  1.00 s   inner (1.00 s)" in printed(of, depth=2)


def test_operations_beside_others_of_their_process() -> None:
    """Each is followed by what is inside of it, gaps are between the outermost ones, and a line says what it means."""
    of = run(
        Mark(name="a", start_s=0.5, end_s=2, pid=100, op=1),
        Mark(name="b", start_s=0.6, end_s=3, pid=100),
        Mark(name="in a", start_s=1, end_s=2, depth=1, pid=100, inside=1),
        Mark(name="in b", start_s=1, end_s=2, depth=1, pid=100),
    )
    text = printed(of, depth=2)
    names = re.findall(r" s +(\S.*?) +\([\d.]+ s\)", text)

    assert names == [
        *("(nothing marked)", "a (parallel)", "in a (parallel)", "b (parallel)", "in b (parallel)", "(nothing marked)")
    ]
    assert "parallel: others of its process ran beside it; growth, CPU and I/O belong to" in text


def test_call_error_and_number() -> None:
    """The function, the exception and the number of calls are next to the name."""
    mark = Mark(
        name="Compilation", start_s=0, end_s=4, call="openvino.Core.compile_model", error="RuntimeError", count=24,
        total_s=2.0, longest_s=0.5,
    )  # fmt: skip
    words = " ".join(printed(run(mark), width=140).split())

    assert "Compilation ×24 RuntimeError compile_model, 2.00 s in calls, the longest 0.500 s" in words


def test_fits_a_terminal() -> None:
    """With names and functions of any length, no line is longer than 80 columns, and none is cut."""
    long = Mark(name="x" * 200, start_s=0, end_s=2, call="package.Class." + "f" * 90)
    text = printed(run(long, Mark(name="\x1b[31mred", start_s=2, end_s=4)))

    assert max(map(len, text.splitlines())) <= 80
    assert "\\x1b[31mred" in text


def test_thousands_of_operations() -> None:
    """Of thousands, the sixty longest are listed and the others counted."""
    marks = [Mark(name=f"op {number}", start_s=number / 1000) for number in range(3000)]
    text = printed(run(*marks))

    assert "… and 2,940 shorter ones" in text
    assert "3000." in text
    assert len(text.splitlines()) < 200


def test_saved_models() -> None:
    """A saved compressed model is listed with the compression parameters from its file."""
    nncf = {"mode": "int4_sym", "ratio": "0.8", "awq": "True", "gptq": "False", "advanced_parameters": "{...}"}
    facts = {"nncf/version": "3", **{f"nncf/weight_compression/{name}": value for name, value in nncf.items()}}
    of = run(models=[SavedModel(path="/out/model.xml", saved_s=1, facts=facts)])

    assert "Compressed model.xml: weight_compression, mode int4_sym, ratio 0.8, awq Sampler" in " ".join(
        printed(of).split()
    )


def test_processes_that_mattered() -> None:
    """Those that held or worked most are listed in the order of their starts; the rest is not."""
    of = run(
        processes=[
            process(0, name="main", peak_rss=mib(400)[0], cpu_s=1.0),
            process(1, name="compiler", peak_rss=mib(300)[0], cpu_s=0.1, start_s=0.5),
            process(2, name="busy", peak_rss=mib(1)[0], cpu_s=5.0, start_s=0.7),
            process(3, name="tiny", peak_rss=mib(1)[0], cpu_s=0.0),
        ]
    )
    table = printed(of).partition("Process ")[2]

    assert [line.split()[0] for line in table.splitlines()[1:4]] == ["main", "compiler", "busy"]
    assert "tiny" not in table


def test_parallel_operations() -> None:
    """Operations of several processes at the same time name their process, with its own memory beside the tree's."""

    def own(rss: int, mark: int) -> OwnMemory:
        return OwnMemory(rss=rss * MIB, high_water_mark=mark * MIB)

    first = Mark(name="Quantization", start_s=0, end_s=3, pid=100, own_start=own(10, 20), own_end=own(30, 90))
    second = Mark(name="Quantization", start_s=1, end_s=4, pid=101, own_start=own(11, 20), own_end=own(31, 20))
    lines = printed(run(first, second, processes=[process(0), process(1, name="worker")])).splitlines()

    assert any("1. 0.000 s Quantization (work, pid 100)" in line for line in lines)
    assert any("2.  1.00 s Quantization (worker, pid 101)" in line for line in lines)
    assert any("Own RSS" in line for line in lines)
    assert next(line.split()[4:7] for line in lines if line.startswith(" 1. ")) == ["10.0", "30.0", "90.0"]
    assert next(line.split()[4:7] for line in lines if line.startswith(" 2. ")) == ["11.0", "31.0", "–"]
