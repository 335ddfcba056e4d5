from __future__ import annotations

import csv
import io
import pathlib
import re
import sys
from array import array

import pandas as pd
import pytest
from pyarrow import parquet

from nncftools.analysis.session import Session
from nncftools.errors import NncfToolsError
from nncftools.render import samples
from nncftools.render.samples import parquet_report, session_report, write
from nncftools.render.view import View, log_stem
from nncftools.session.model import Mark, Series
from nncftools.session.samples import Samples
from nncftools.units import MemoryUnit
from tests.conftest import Run, burner
from tests.made_up import END, MIB, journal, mib, process, session
from tests.render import golden

NO_SAMPLES = "No measurements recorded.\nThe recording ended before the first sample that is known.\n"


def log(of: Session, folder: pathlib.Path, metric: str = "rss", *, unit: str = "MiB", from_zero: bool = False) -> str:
    """Return the text of a metric's log."""
    view = View(metrics=(metric,), unit=MemoryUnit(unit), from_zero=from_zero)
    write(of, view, metric, folder / "log.txt")
    return (folder / "log.txt").read_text(encoding="utf-8")


def test_text(tmp_path: pathlib.Path) -> None:
    """One row per sample, then the time from the first to the last, and the maximum with its unit."""
    assert log(session(), tmp_path) == (
        "0.000 100.000\n0.500 300.000\n1.000 200.000\nTotal time: 1.000\nMax memory: 300.000 (MiB)\n"
    )


def test_from_zero(tmp_path: pathlib.Path) -> None:
    """From zero, the first sample is subtracted from every row and from the maximum."""
    assert log(session(), tmp_path, from_zero=True) == (
        "0.000 0.000\n0.500 200.000\n1.000 100.000\nTotal time: 1.000\nMax memory: 200.000 (MiB)\n"
    )


def test_peak_between_samples(tmp_path: pathlib.Path) -> None:
    """The maximum is the peak that the report names, also where a high-water mark proves it."""
    of = session(processes=[process(high_water_mark=350 * MIB)])

    assert "Max memory: 350.000 (MiB)\n" in log(of, tmp_path)
    assert "Max memory: 250.000 (MiB)\n" in log(of, tmp_path, from_zero=True)


def test_other_metric_and_unit(tmp_path: pathlib.Path) -> None:
    """The log is of the metric and in the unit that were asked for."""
    text = log(session({"system": mib(1000, 1300)}), tmp_path, "system", unit="GiB")

    assert text.splitlines()[0] == "0.000 0.977"
    assert text.endswith("Max memory: 1.270 (GiB)\n")


def test_falling_below_the_first_sample(tmp_path: pathlib.Path) -> None:
    """From zero, a figure below the first sample is negative."""
    falling = session({"rss": mib(3, 1)})

    assert log(falling, tmp_path, from_zero=True).splitlines()[1] == "0.500 -2.000"


def test_unknown_samples_are_left_out(tmp_path: pathlib.Path) -> None:
    """A sample whose figure is unknown has no row, and from-zero counts from the first that is known."""
    gaps = session({"rss": mib(None, 2, None, 5)})

    assert log(gaps, tmp_path, from_zero=True) == (
        "0.500 0.000\n1.500 3.000\nTotal time: 1.000\nMax memory: 3.000 (MiB)\n"
    )


@pytest.mark.parametrize(
    "nothing", [session({"rss": []}), session({"rss": [None, None]})], ids=["no samples", "unknown"]
)
@pytest.mark.parametrize("from_zero", [False, True])
def test_no_data(tmp_path: pathlib.Path, nothing: Session, *, from_zero: bool) -> None:
    """A log without samples says that none were recorded."""
    assert log(nothing, tmp_path, from_zero=from_zero) == NO_SAMPLES


def test_a_failing_write_leaves_no_file(tmp_path: pathlib.Path) -> None:
    """When the log cannot take its place, nothing is left behind."""
    (tmp_path / "log.txt").mkdir()

    with pytest.raises(OSError, match=r"log\.txt"):
        log(session(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["log.txt"]


@pytest.mark.parametrize(
    ("metric", "expected", "from_zero"),
    [("rss", "rss_memory_usage", False), ("system", "system_memory_usage_from-zero", True)],
)
def test_stem(metric: str, expected: str, *, from_zero: bool) -> None:
    """The name contains the metric, and whether it is from zero."""
    assert log_stem(metric, from_zero=from_zero) == expected


VIEW = View(metrics=["rss"])


def rows(of: Session) -> list[list[str]]:
    """Return the cells."""
    return list(csv.reader(io.StringIO(samples.csv_report(of, VIEW))))


def test_base_units() -> None:
    """All metrics are there, bytes as whole numbers and seconds as they are."""
    assert rows(session({"rss": mib(1, 2), "cpu_user": [0.25, 1.0], "processes": [1, 2]})) == [
        ["time_s", "rss", "cpu_user", "processes"],
        ["0.0", str(MIB), "0.25", "1"],
        ["0.5", str(2 * MIB), "1.0", "2"],
    ]


def test_unknown_is_empty() -> None:
    """An unknown figure is an empty cell."""
    assert rows(session({"rss": [None, 5]}))[1:] == [["0.0", ""], ["0.5", "5"]]


def test_no_sample() -> None:
    """Without samples the names of the columns are left."""
    assert rows(session({"rss": []})) == [["time_s", "rss"]]


def test_more_than_a_portion() -> None:
    """Long recordings are written in portions, and nothing is lost between them."""
    found = rows(session({"rss": list(range(25_001))}))

    assert [row[1] for row in found[1:]] == [str(place) for place in range(25_001)]


def test_name_that_spreadsheets_would_run() -> None:
    """A name that would be a formula is text to a spreadsheet."""
    assert rows(session({"rss": [1], "=1+1": [0.5]}))[0] == ["time_s", "rss", "'=1+1"]


def test_name_with_a_comma() -> None:
    """A metric of another version may be called anything."""
    assert rows(session({"rss": [1], 'a,"b"\n': [0.5]}))[0] == ["time_s", "rss", 'a,"b"\n']
    assert rows(session({"rss": [1], "other": [0.5]}))[1] == ["0.0", "1", "0.5"]


def frame(of: Session) -> pd.DataFrame:
    """Return what pandas reads back."""
    return pd.read_parquet(io.BytesIO(parquet_report(of, VIEW)))


def test_comes_back() -> None:
    """The table comes back from pandas as it went in: seconds as index and floats, bytes and numbers as whole ones."""
    found = frame(session({"rss": mib(1, 2), "cpu_user": [0.25, 1.0], "processes": [1, 2]}))

    assert found.index.name == "time_s"
    assert list(found.index) == [0.0, 0.5]
    assert dict(found.dtypes.astype(str)) == {"rss": "Int64", "cpu_user": "float64", "processes": "Int64"}
    assert found.to_dict("list") == {"rss": [MIB, 2 * MIB], "cpu_user": [0.25, 1.0], "processes": [1, 2]}


def test_unknown() -> None:
    """An unknown figure is null, not 0 and not NaN in a column of whole numbers."""
    of = session({"rss": [None, 5], "cpu_user": [None, 1.0]})
    found = frame(of)
    columns = parquet.read_table(io.BytesIO(parquet_report(of, VIEW)))

    assert [found[name].isna().tolist() for name in ("rss", "cpu_user")] == [[True, False], [True, False]]
    assert columns["rss"].to_pylist() == [None, 5]


def test_large_numbers() -> None:
    """The largest figure that a session may hold stays what it is."""
    assert frame(session({"rss": [2.0**63 - 1024]}))["rss"][0] == 2**63 - 1024
    assert frame(session({"rss": [2.0**63]}))["rss"][0] == 2.0**63


def test_samples_parquet_no_sample() -> None:
    """Without samples the columns are left."""
    found = frame(session({"rss": []}))

    assert (list(found), len(found)) == (["rss"], 0)


def test_metric_of_another_version() -> None:
    """A metric that is not known stays as it is."""
    assert frame(session({"rss": [1], "gpu": [0.5]}))["gpu"].tolist() == [0.5]


def test_facts() -> None:
    """The metadata has the rest of the session, except for the samples of single processes."""
    processes = [process(series=Series(time_s=[0.0], rss=[1]))]
    facts = frame(session(marks=[Mark(name="Export", start_s=0)], processes=processes)).attrs

    assert facts["command"] == ["work", "--fast"]
    assert facts["host"]["name"] == "box"
    assert facts["start"]["utc"].startswith("2026-11-21")
    assert facts["peaks"]["rss"]["low"] == 300 * MIB
    assert facts["marks"][0]["name"] == "Export"
    assert (facts["processes"][0]["pid"], facts["processes"][0]["series"]) == (100, None)
    assert "samples" not in facts


@pytest.mark.long
def test_many_samples() -> None:
    """Every sample of a long recording is there."""
    values = array("d", range(200_000))
    of = session(samples=Samples({"time_s": values, "rss": values}), duration_s=values[-1])

    assert frame(of)["rss"].sum() == sum(range(200_000))


def test_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pyarrow one line says how to install it."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    with pytest.raises(NncfToolsError, match=re.escape("pip install 'nncf-tools[parquet]'")):
        parquet_report(session(), VIEW)


@pytest.mark.long
def test_on_the_command_line(nncf_tools: Run, tmp_path: pathlib.Path) -> None:
    """A real recording becomes a file that pandas reads."""
    words = burner("copies", "figures", 1, 1, "rss")  # lives until it was sampled
    nncf_tools("monitor", "-q", "--no-plot", "-i", 0.02, "-o", "run.json", "--", *words)
    done = nncf_tools("report", "run.json", "--format", "parquet", "--output", "run.parquet")
    found = pd.read_parquet(tmp_path / "run.parquet")

    assert done.returncode == 0
    assert found.attrs["command"] == words
    assert found["rss"].max() > 100_000
    assert len(found) == len(Session.load(tmp_path / "run.json").samples)


def test_is_what_save_writes(tmp_path: pathlib.Path) -> None:
    """The report is the very file of the session."""
    assert session_report(golden.run(), VIEW) == golden.run().save(tmp_path / "run.json").read_bytes()


def test_session_json_comes_back(tmp_path: pathlib.Path) -> None:
    """A loaded session is reported byte for byte, what this version does not know included."""
    path = tmp_path / "run.json"
    path.write_bytes(session_report(session(), VIEW)[:-3] + b',\n"of tomorrow": [1, 2.50]\n}\n')

    assert session_report(Session.load(path), VIEW) == path.read_bytes()


@pytest.mark.long
def test_of_a_journal(nncf_tools: Run, tmp_path: pathlib.Path) -> None:
    """On the command line a journal becomes a session, also through a pipe."""
    (tmp_path / "run.journal.jsonl").write_bytes(journal({"s": [0.5, 100]}, END))
    written = nncf_tools("report", "run.journal.jsonl", "--format", "session", "--output", "run.json")
    piped = nncf_tools("report", "run.journal.jsonl", "--format", "session")

    assert (written.returncode, piped.returncode) == (0, 0)
    assert (tmp_path / "run.json").read_text() == piped.stdout
    assert Session.load(tmp_path / "run.json").exit == Session.load(tmp_path / "run.journal.jsonl").exit
