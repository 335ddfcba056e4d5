from __future__ import annotations

import io
import pathlib
import re
import sys
from array import array

import pandas as pd  # noqa: TID253 — it reads what is written
import pytest
from pyarrow import parquet

from nncftools.errors import NncfToolsError
from nncftools.render.samples import parquet_report
from nncftools.render.view import View
from nncftools.session.model import Mark, Series
from nncftools.session.samples import Samples
from nncftools.session.session import Session
from tests.conftest import Run, burner
from tests.made_up import MIB, mib, process, session

VIEW = View(metrics=["rss"])


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


def test_no_sample() -> None:
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
