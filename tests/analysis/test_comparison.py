from __future__ import annotations

from typing import Any

import pytest

from nncftools.analysis.comparison import Run, compare_runs, match_operations, measure_run
from nncftools.analysis.operation import Operation
from nncftools.session.model import Mark, SavedModel
from tests.made_up import MIB, mib, process, session

TIMES = (0, 1, 2, 3)


def run(*rss: float, title: str = "run", **fields: Any) -> Run:  # noqa: ANN401 — any field of a session
    """Return a run whose RSS in MiB was taken once a second."""
    return measure_run(session({"time_s": range(len(rss)), "rss": mib(*rss)}, **fields), title)


def marked(*marks: Mark, depth: int = 1, with_inner: bool = False, **columns: Any) -> Run:  # noqa: ANN401 — any column
    """Return a run of four seconds with operations."""
    given = {"time_s": TIMES, "rss": mib(100, 400, 200, 100), **columns}
    return measure_run(session(given, marks=list(marks)), "run", depth, with_inner=with_inner)


def warnings(base: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return the warnings of two runs with these fields."""
    return list(compare_runs([run(1, 2, title="a", **base)], [run(1, 2, title="b", **new)]).warnings)


class TestRun:
    def test_operations_of_one_name(self) -> None:
        """The second operation of a name gets a number; a number that another name already contains is skipped."""
        of = marked(*(Mark(name=name, start_s=at) for at, name in enumerate(("a", "a (2)", "a"))))

        assert list(of.operations) == ["a", "a (2)", "a (3)"]


class TestDifference:
    @pytest.mark.parametrize("high, expected", [(250, True), (219, False), (None, False)])
    def test_brackets(self, high: int | None, expected: bool) -> None:  # noqa: FBT001 — a parameter of a test
        """A difference is within the brackets if they overlap; for brackets without an upper end this is unknown."""
        ends = None if high is None else high * MIB
        base = run(100, 200, processes=[process(high_water_limit=ends, end_s=1.0, start_s=-1.0)])
        new = run(100, 220, processes=[process(high_water_limit=300 * MIB, end_s=1.0, start_s=-1.0)])

        assert compare_runs([base], [new]).figures["peak_rss"].is_within_brackets is expected


class TestNoise:
    @pytest.mark.parametrize(
        "base, new, expected",
        [
            ("100", "100.9", False),  # less than 1 MiB
            ("1000", "1009", False),  # less than 1 %
            ("1000", "1011", True),
            ("1000 1010", "1020 1030", True),  # apart, though two runs are too few for the test
            ("1000 1030", "1020 1050", False),
            ("1000 1001 1002 1003", "1020 1021 1022 1023", True),
            ("1000 1001 1002 1030", "1020 1021 1022 1023", False),
        ],
    )
    def test_stands_out(self, base: str, new: str, expected: bool) -> None:  # noqa: FBT001 — a parameter of a test
        """A change is more than noise when it is large enough to matter and exceeds the spread of the runs."""
        sides = ([run(1, float(size)) for size in sizes.split()] for sizes in (base, new))

        assert compare_runs(*sides).figures["peak_rss"].stands_out is expected


class TestModelSize:
    def of(self, **saved: int | None) -> float | None:
        """Return the model size of a run that saved files with these sizes; ``__`` stands for a slash."""
        marks = [
            Mark(name="Saving", start_s=0, saved=f"/{name.replace('__', '/')}", saved_size=size)
            for name, size in saved.items()
        ]
        figures = run(1, 2, marks=marks).figures
        return figures["model_size"].low if "model_size" in figures else None

    def test_sum_of_what_was_saved(self) -> None:
        """What was saved counts once, also when its folder was saved, too."""
        assert self.of(a=5, b=7) == 12
        assert self.of(out=50, out__model=20) == 50


class TestSettings:
    def test_names_of_files(self) -> None:
        """The name of a saved file is no setting."""
        base, new = (
            run(1, 2, marks=[Mark(name="Saving", start_s=0, call="save_model", arguments=name)]) for name in "ab"
        )

        assert compare_runs([base], [new]).settings == []

    def test_saved_models(self) -> None:
        """How a saved model was compressed is a setting."""
        sides = [
            [SavedModel(path="/m.xml", saved_s=0, facts={"nncf/weight_compression/mode": mode, "other": mode})]
            for mode in ("int8", "int4")
        ]
        base, new = (run(1, 2, models=models) for models in sides)
        found = compare_runs([base], [new]).settings

        assert [(one.name, one.base, one.new) for one in found] == [("mode", "int8", "int4")]
        assert compare_runs([base], [run(1, 2)]).settings == []  # that no model was saved says nothing of its settings


class TestWarnings:
    def test_one_sample(self) -> None:
        """A run with one sample is compared, with a warning."""
        assert compare_runs([run(1, 2)], [run(1, title="b")]).warnings == [
            "b has one sample: its memory at other moments is unknown"
        ]


def calls(text: str) -> dict[str, Operation]:
    """Return operations of a second from a text such as ``f(a) f(b)``, by number and call: ``0:f(a)``."""
    found = {}
    for place, call in enumerate(text.split()):
        name, _, arguments = call.rstrip(")").partition("(")
        of = Operation(name=name, start_s=0.0, end_s=1.0, call=f"lib.{name}", arguments=arguments)
        found[f"{place}:{call}"] = of
    return found


@pytest.mark.parametrize(
    "runs, expected",
    [
        (["f(a) f(b)", "f(b) f(a)"], ["0:f(a) 1:f(a)", "1:f(b) 0:f(b)"]),
        (["f(a) f(b) f(c)", "f(b) f(c)"], ["0:f(a) None", "1:f(b) 0:f(b)", "2:f(c) 1:f(c)"]),
        (
            ["f(a) f(a) g()", "f(a) f(a) g()", "f(a)"],
            ["0:f(a) 0:f(a) 0:f(a)", "1:f(a) 1:f(a) None", "2:g() 2:g() None"],
        ),
        (["f()", "g() f()"], ["0:f() 1:f()", "None 0:g()"]),
    ],
    ids=["in another order", "one is missing", "equal calls", "another function"],
)
def test_calls_are_matched(runs: list[str], expected: list[str]) -> None:
    """Calls are matched by function and arguments, then by function, in their order; others of later runs come last."""
    matches = match_operations([calls(run) for run in runs])
    found = [" ".join(str(one.get(place)) for place in range(len(runs))) for one in matches]

    assert found == expected
