from __future__ import annotations

import csv
import io
import re
import sys
from pathlib import Path

import pandas as pd
import pytest

from nncftools.analysis.session import Session
from nncftools.errors import NncfToolsError
from nncftools.render.samples import csv_report, parquet_report, session_report, write
from nncftools.render.view import View
from tests.made_up import MIB, process, session

VIEW = View(metrics=["rss"])


@pytest.mark.parametrize(
    "of, ending",
    [
        (session(processes=[process(high_water_mark=350 * MIB)]), "\nMax memory: 350.000 (MiB)\n"),
        (session({"rss": [None, None]}), "ended before the first value was read.\n"),
    ],
    ids=["high-water mark", "nothing known"],
)
def test_memory_log(tmp_path: Path, of: Session, ending: str) -> None:
    """The maximum is the peak that the report names, also where a high-water mark proves it."""
    write(of, VIEW, "rss", tmp_path / "log.txt")

    assert (tmp_path / "log.txt").read_text(encoding="utf-8").endswith(ending)


def test_more_than_a_portion() -> None:
    """Long recordings are written in portions, and nothing is lost between them."""
    found = list(csv.reader(io.StringIO(csv_report(session({"rss": list(range(25_001))}), VIEW))))

    assert [row[1] for row in found[1:]] == [str(place) for place in range(25_001)]


def frame(of: Session) -> pd.DataFrame:
    """Return what pandas reads back."""
    return pd.read_parquet(io.BytesIO(parquet_report(of, VIEW)))


def test_large_numbers() -> None:
    """The largest figure that a session may hold stays what it is."""
    assert frame(session({"rss": [2.0**63 - 1024]}))["rss"][0] == 2**63 - 1024
    assert frame(session({"rss": [2.0**63]}))["rss"][0] == 2.0**63


def test_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pyarrow one line says how to install it."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    with pytest.raises(NncfToolsError, match=re.escape("pip install 'nncf-tools[parquet]'")):
        parquet_report(session(), VIEW)


def test_session_json_comes_back(tmp_path: Path) -> None:
    """A loaded session is reported byte for byte, what this version does not know included."""
    path = tmp_path / "run.json"
    path.write_bytes(session_report(session(), VIEW)[:-3] + b',\n"of tomorrow": [1, 2.50]\n}\n')

    assert session_report(Session.load(path), VIEW) == path.read_bytes()
