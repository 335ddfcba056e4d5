from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from msgspec.structs import replace

from nncftools.analysis.comparison import Comparison, compare_runs, measure_run
from nncftools.analysis.gates import judge_gate, parse_gate
from nncftools.analysis.session import Session
from nncftools.errors import UsageError
from nncftools.session.model import END_UNKNOWN, Mark
from tests.made_up import marks, mib, process, rows, session


def runs(base: float, new: float) -> Comparison:
    """Return the comparison of two runs with these peaks in MiB; 10 CPU seconds, and one operation, Export."""

    def one(peak: float) -> Session:
        operations = marks("Export 0-0.5, Export/inner 0-0.2")
        return session(
            {"rss": mib(1, peak)}, totals={"cpu_user": 10.0, "cpu_system": 0.0, "read_bytes": 0}, marks=operations
        )

    sides = [[measure_run(one(peak), name, with_inner=True)] for peak, name in ((base, "base"), (new, "new"))]
    return compare_runs(*sides)


def groups(base: list[float], new: list[float]) -> Comparison:
    """Return the comparison of two groups with these peaks in MiB."""
    return compare_runs(
        *([measure_run(session({"rss": mib(1, peak)}), "run") for peak in peaks] for peaks in (base, new))
    )


def measure(text: str, of: Comparison) -> str:
    """Return the figure of a gate as a text."""
    return judge_gate(parse_gate(text), of).measured


@pytest.mark.parametrize(
    "text, limit, relative, percent",
    [
        ("peak_rss>+5%", Fraction(5), True, True),
        (" peak_rss < -0.5 % ", Fraction(-1, 2), True, True),
        ("peak_rss>8GiB", Fraction(8 << 30), False, False),
        ("peak_rss>-.5MB", Fraction(-500_000), True, False),
        ("duration>90s", Fraction(90), False, False),
        ("cpu>+1.5", Fraction(3, 2), True, False),
    ],
)
def test_grammar(text: str, limit: Fraction, relative: bool, percent: bool) -> None:  # noqa: FBT001 — parameters of a test
    """A gate is a metric, a relation, a number and a unit; a sign makes it one of the change."""
    gate = parse_gate(text)

    assert (gate.limit, gate.relative, gate.percent) == (limit, relative, percent)


@pytest.mark.parametrize("name", ["Export", "Model Loading", "a>b", "a@b", "漢字", "Export (2)"])
def test_operation(name: str) -> None:
    """The operation is everything between the first @ and the last relation."""
    assert parse_gate(f"peak_rss@{name}>+5%").operation == name


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "cannot be read"),
        ("peak_rss", "cannot be read"),
        ("peak_rss>=5%", "cannot be read"),
        ("peak_rss>five", "cannot be read"),
        ("peak_rss>nan", "cannot be read"),
        ("peak_rss@>5%", "cannot be read"),
        ("peak_rss>1e3", "cannot be read"),
        ("x" * 100_000, "cannot be read"),
        ("peak>+5%", "'peak' is not one of peak_rss, peak_vms, .*write_chars; did you mean peak_rss?"),
        ("peak_mem>8GiB", "write_chars; did you mean peak_rss?"),
        ("duratoin>1s", "write_chars; did you mean duration?"),
        ("peak_rss>5%", r"a percentage is a change against BASE: \+5% or -5% expected"),
        ("peak_rss>5s", "the unit 's' is not one of %, B, KiB"),
        ("duration>5GiB", "the unit 'GiB' is not one of %, s"),
        ("peak_rss>5", "a size needs its unit .B, KiB, .* as in peak_rss>5MiB"),
    ],
)
def test_unreadable(text: str, message: str) -> None:
    """A gate that cannot be read is refused with what was expected."""
    with pytest.raises(UsageError, match=message):
        parse_gate(text)


@pytest.mark.parametrize(
    "text, passed",
    [
        ("peak_rss>+5%", False),
        ("peak_rss>+10%", True),
        ("peak_rss>+9.999%", False),
        ("peak_rss<+10%", True),
        ("peak_rss<+10.001%", False),
        ("peak_rss>-5%", False),
        ("peak_rss>+9MiB", False),
        ("peak_rss>109MiB", False),
        ("peak_rss<111MiB", False),
        ("cpu>+0%", True),
        ("read_bytes>+5%", True),
        ("peak_rss@Export>+5%", False),
        ("duration@Export>0.5s", True),
    ],
)
def test_one_run_each(text: str, passed: bool) -> None:  # noqa: FBT001 — a parameter of a test
    """From 100 to 110 MiB: a gate fails beyond its limit, and passes exactly at it."""
    assert judge_gate(parse_gate(text), runs(100, 110)).passed is passed


@pytest.mark.parametrize(
    "text, passed, measured",
    [
        ("peak_rss>400MiB", False, "500.0 MiB, the largest of 3 runs"),
        ("peak_rss<80MiB", True, "90.0 MiB, the smallest of 3 runs"),
    ],
)
def test_limit_of_groups(text: str, passed: bool, measured: str) -> None:  # noqa: FBT001 — a parameter of a test
    """A limit has to be kept by every run of the group."""
    verdict = judge_gate(parse_gate(text), groups([100], [90, 101, 500]))

    assert (verdict.passed, verdict.measured) == (passed, measured)


@pytest.mark.parametrize(
    "text, message",
    rows("""
peak_pss>+5% | 'peak_pss' is not known in both BASE and NEW; known there: peak_rss, duration, cpu
peak_pss>5GiB | 'peak_pss' is not known in NEW; known there: peak_rss
peak_pss@Export>5GiB | 'peak_pss' is not known in NEW; known there: peak_rss, duration
peak_rss@Load>+5% | no operation 'Load' in both BASE and NEW; known there: 'Export'
peak_rss@Load>5GiB | no operation 'Load' in NEW; known there: 'Export'
"""),
)
def test_unknown(text: str, message: str) -> None:
    """A metric or operation that was not recorded is refused with what there is; it never passes silently."""
    with pytest.raises(UsageError, match=message):
        judge_gate(parse_gate(text), runs(100, 110))


def test_calls_on_all_levels() -> None:
    """A gate looks at calls inside other operations, too; numbers are those of the table, which lacks them."""
    operations = marks("Load 0-1.2, Load/Save 0.7-1.1, Save 1.3-1.4, Save 1.6-1.9")
    run = measure_run(session({"rss": mib(1, 2, 9, 3)}, marks=operations), "run", with_inner=True)
    of = compare_runs([run], [run])
    operations = ("Save", "Save (1)", "Save (2)", "Save (3)")

    assert [measure(f"duration@{each}>9s", of) for each in operations] == [
        "0.800 s in 3 calls",
        "0.100 s",
        "0.300 s",
        "0.400 s",
    ]
    assert measure("peak_rss@Save>0", of) == "9.0 MiB in 3 calls"


def called(*arguments: str | None) -> Comparison:
    """Return the comparison of a run with itself: ``nncf.compress_weights`` with these arguments for 1 s, 2 s, ..."""
    marks = [
        Mark(name="Weight Compression", start_s=at, end_s=2 * at + 1, call="nncf.compress_weights", arguments=each)
        for at, each in enumerate(arguments)
    ]
    inner = Mark(name="Inference", start_s=0, end_s=0.1, depth=1, call="openvino.InferRequest.infer")
    run = measure_run(session({"rss": mib(1, 1)}, duration_s=10, marks=[*marks, inner]), "run", with_inner=True)
    return compare_runs([run], [run])


@pytest.mark.parametrize(
    "operation, expected",
    rows("""
compress_weights | 6.00 s in 3 calls
compress_weights (2) | 2.00 s
nncf.compress_weights | 6.00 s in 3 calls
compress_weights(INT4_SYM) | 5.00 s in 2 calls
compress_weights(awq, int4_sym) | 3.00 s
compress_weights(INT4_SYM) (2) | 3.00 s
compress_weights(ratio 0.8) | 2.00 s
Weight Compression | 6.00 s in 3 calls
Weight Compression (3) | 3.00 s
InferRequest.infer | 0.100 s
"""),
)
def test_operation_by_its_function(operation: str, expected: str) -> None:
    """A name, or a function with some of its arguments in any order, means all its calls; a number means one."""
    of = called("INT8_ASYM", "INT4_SYM, g64, ratio 0.8", "INT4_SYM, g64, awq")

    assert measure(f"duration@{operation}>9s", of) == expected


def epochs(*ends: float, **last: Any) -> Comparison:  # noqa: ANN401 — any field of a mark
    """Return the comparison of a run with itself: at most 9 MiB at 1 s, and an operation "Epoch" every half second."""
    marks = [Mark(name="Epoch", start_s=number / 2, end_s=end_s) for number, end_s in enumerate(ends)]
    marks[-1] = replace(marks[-1], **last)
    columns = {"rss": mib(1, 2, 9, 3), "read_bytes": [0, 10, 30, 60]}
    run = measure_run(session(columns, marks=marks, processes=[process(end_s=1.5)]), "run", depth=2, with_inner=True)
    return compare_runs([run], [run])


def test_calls_at_the_same_time() -> None:
    """What calls cost that ran at the same time has no sum, and the error says so; peak and durations are known."""
    of = epochs(0.8, 0.9, 1.4)

    assert measure("duration@Epoch>0s", of) == "1.60 s in 3 calls"
    assert judge_gate(parse_gate("peak_rss@Epoch>1GiB"), of).passed
    with pytest.raises(UsageError, match="'read_bytes' is not known in NEW, as some calls ran at the same time;"):
        judge_gate(parse_gate("read_bytes@Epoch>0"), of)


def on_threads(operations: str, *around: int | None) -> Comparison:
    """Return the comparison of a run with itself; ``around`` has the number of the operation around each one."""
    of = marks(operations, pid=1)
    for number, (mark, inside) in enumerate(zip(of, around, strict=True)):
        mark.op, mark.inside = number, inside
    run = measure_run(session({"rss": mib(1, 2)}, marks=of, duration_s=1), "run", depth=9, with_inner=True)
    return compare_runs([run], [run])


@pytest.mark.parametrize(
    "operations, third, expected",
    [
        ("W 0-0.8, W 0.1-0.2, W/W 0.3-0.5", 0, "0.900 s in 3 calls"),
        ("W 0-0.8, X 0.1-0.5, X/W 0.1-0.4", 1, "1.10 s in 2 calls"),
    ],
    ids=["beside another call", "inside an operation of another thread"],
)
def test_calls_on_several_threads(operations: str, third: int, expected: str) -> None:
    """A call is left out of the sum only if one of those around it on its own thread has its name."""
    of = on_threads(operations, None, None, third)

    assert measure("duration@W>9s", of) == expected


def test_call_two_levels_below() -> None:
    """A call does not count twice if another operation is between both."""
    of = on_threads("W 0-0.8, W/X 0.1-0.7, W/X/W 0.2-0.4", None, 0, 1)

    assert measure("duration@W>9s", of) == "0.800 s in 2 calls"


def counted_together(*further: float) -> Comparison:
    """Return the comparison of a run of 100 steps, 0.05 s in 0.3 s, with one that has further steps from 0.5 s on."""
    steps = Mark(name="Step", start_s=0.1, end_s=0.4, count=100, total_s=0.05, longest_s=0.01)
    marks = [steps, *(Mark(name="Step", start_s=0.5, end_s=0.5 + length) for length in further)]
    runs = [
        measure_run(session({"rss": mib(1, 2)}, marks=of, duration_s=1), "run", with_inner=True)
        for of in ([steps], marks)
    ]
    return compare_runs(runs[:1], runs[1:])


@pytest.mark.parametrize(
    "further, expected", [([], "0.050 s in 100 calls"), ([0.01], "0.060 s in 101 calls")], ids=["one row", "two"]
)
def test_calls_that_are_counted_together(further: list[float], expected: str) -> None:
    """The duration of several calls is the time in them, whether they are one row or several."""
    of = counted_together(*further)

    assert measure("duration@Step>9s", of) == expected
    assert of.base[0].operations["Step"]["duration"].low == 0.05


def test_numbers_of_calls_of_both_sides() -> None:
    """A change of several calls together says how many there are in NEW and in BASE."""
    measured_ = measure("duration@Step>+9s", counted_together(0.01))

    assert measured_ == "0.060 s against 0.050 s (+0.010 s, +20.00%) in 101 and 100 calls"


def test_call_whose_end_is_unknown() -> None:
    """The duration of several calls is unknown if that of one is."""
    of = epochs(0.4, 0.9, 1.4, error=END_UNKNOWN)

    with pytest.raises(UsageError, match="'duration' is not known in NEW"):
        judge_gate(parse_gate("duration@Epoch>9s"), of)
