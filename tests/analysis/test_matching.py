from __future__ import annotations

from nncftools.analysis.comparison import Function, matched

Calls = list[tuple[str, str]]


def names(*runs: Calls) -> list[tuple[str | None, ...]]:
    """Return which operations are the same, as their names in each run; a run is a list of names and arguments."""
    functions = [
        {f"{place}:{name}({of})": Function(name, f"lib.{name}", of) for place, (name, of) in enumerate(run)}
        for run in runs
    ]
    return [tuple(one.get(place) for place in range(len(runs))) for one in matched(functions)]


def test_arguments_decide() -> None:
    """Calls of one function are matched by their arguments, in whatever order they come."""
    assert names([("f", "a"), ("f", "b")], [("f", "b"), ("f", "a")]) == [("0:f(a)", "1:f(a)"), ("1:f(b)", "0:f(b)")]


def test_one_that_is_missing_shifts_nothing() -> None:
    """A call that only one run has leaves the others with their equals."""
    assert names([("f", "a"), ("f", "b"), ("f", "c")], [("f", "b"), ("f", "c")]) == [
        ("0:f(a)", None),
        ("1:f(b)", "0:f(b)"),
        ("2:f(c)", "1:f(c)"),
    ]


def test_what_is_left_is_matched_by_function() -> None:
    """A call whose arguments no other has is compared with the next free one of its function."""
    assert names([("f", "int8"), ("f", "x")], [("f", "int4"), ("f", "x")]) == [
        ("0:f(int8)", "0:f(int4)"),
        ("1:f(x)", "1:f(x)"),
    ]


def test_repeated_calls_keep_their_order() -> None:
    """Of equal calls, the first is matched with the first, over any number of runs."""
    run = [("f", "a"), ("f", "a"), ("g", "")]

    assert names(run, run, run[:1]) == [
        ("0:f(a)",) * 3,
        ("1:f(a)", "1:f(a)", None),
        ("2:g()", "2:g()", None),
    ]


def test_name_is_enough() -> None:
    """Operations of one name are matched even if other functions did them."""
    one, other = ({"Export": Function("Export", call, "x")} for call in ("torch.onnx.export", "convert_model"))

    assert matched([one, other]) == [{0: "Export", 1: "Export"}]


def test_other_names_are_others() -> None:
    """What only later runs have comes last."""
    assert names([("f", "")], [("g", ""), ("f", "")]) == [("0:f()", "1:f()"), (None, "0:g()")]
