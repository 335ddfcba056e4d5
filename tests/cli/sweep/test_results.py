from __future__ import annotations

import csv
import io
import os
from pathlib import Path

import pytest

from nncftools.cli.sweep import grid, runs
from nncftools.cli.sweep.grid import Layers
from nncftools.cli.sweep.results import (
    State,
    SweepFolder,
    SweepRow,
    describe_widths,
    explain_difference,
    make_stamp,
    make_table,
)
from nncftools.cli.sweep.runs import estimate_s, estimate_unit_s
from nncftools.compression import reading
from nncftools.errors import NncfToolsError, UsageError
from nncftools.markdown import MARK

GRID = grid.weight_grid("quick", Layers(frozenset(), None))[0]
PERPLEXITY = "held-out text, word perplexity"


def row_of(name: str, **figures: object) -> SweepRow:
    """Return the row of a configuration of the grid."""
    one = next(one for one in GRID if one.name == name)
    found = SweepRow(one.name, one.settings(), one.title, *one.shares, one.rank)
    for field, value in figures.items():
        setattr(found, field, value)
    return found


def cells(rows: list[SweepRow]) -> list[dict[str, str]]:
    """Return the rows of the CSV file."""
    return list(csv.DictReader(io.StringIO(make_table("M", "model, group size 64", rows))))


def test_widths_leave_out_what_rounds_to_nothing() -> None:
    """The largest share comes first."""
    assert describe_widths({"int8": 20, "int4": 80}) == "int4 80%, int8 20%"
    assert describe_widths({}) == ""


def test_rows_are_kept_until_settings_change(tmp_path: Path) -> None:
    """A row is found again by its name; one whose configuration has changed is not."""
    folder = SweepFolder(tmp_path / "results.csv")
    folder.keep(row_of("int4", failed="x"))
    folder.keep(row_of("int8"))
    changed = grid.weight_grid("quick", Layers(frozenset({64}), None))[0]

    assert list(folder.rows(GRID)) == ["int8", "int4"]
    assert folder.rows(GRID)["int4"].failed == "x"
    assert list(folder.rows(changed)) == ["int8"]
    assert folder.path == tmp_path / "results.sweep"


def test_folders_of_similar_names_differ(tmp_path: Path) -> None:
    """Names that look the same as folders, or lead elsewhere, have folders of their own inside the sweep's."""
    folder = SweepFolder(tmp_path / "results.csv")
    names = ["80% int4", "80, int4", "../../x", "..", "model"]

    assert len({folder.of(name) for name in names}) == len(names)
    assert all(folder.of(name).parent == folder.path for name in names)
    assert folder.of("model") != folder.path / "model"


@pytest.mark.parametrize("is_fifo", [False, True])
def test_damaged_row_is_named(tmp_path: Path, *, is_fifo: bool) -> None:
    """A file that is none is an error with its name, and so is a FIFO, which is not waited for."""
    folder = SweepFolder(tmp_path / "results.csv")
    folder.keep(row_of("int4"))
    row = folder.of("int4") / "row.json"
    row.write_text("{")
    if is_fifo:
        row.unlink()
        os.mkfifo(row)

    with pytest.raises(NncfToolsError, match=r"row\.json.*cannot be read"):
        folder.rows(GRID)


def test_sweep_of_other_inputs_cannot_go_on(tmp_path: Path) -> None:
    """The difference is named: another text makes other figures."""
    text = tmp_path / "text.txt"
    text.write_text("one")
    before = State("M", "model", {"text": make_stamp(text)})
    text.write_text("two")

    assert explain_difference(before, before) == ""
    assert (
        explain_difference(before, State("M", "model", {"text": make_stamp(text)}))
        == "it was made with a different text"
    )
    assert "not with 'N'" in explain_difference(before, State("N", "model", before.inputs))


def test_time_is_expected_by_runs_before() -> None:
    """A configuration that ran takes as long again; the others by their usual effort."""
    before = {"fp32": row_of("fp32", wall_s=10.0), "int8": row_of("int8", wall_s=20.0, peak=7, inference_peak=3)}
    unit_s = estimate_unit_s(GRID, before)

    assert unit_s is not None
    assert estimate_s(GRID[1], before, unit_s) == 20.0
    assert estimate_s(GRID[3], before, unit_s) == pytest.approx(32)
    assert estimate_unit_s(GRID, {}) is None


def test_one_sweep_at_a_time(tmp_path: Path) -> None:
    """A second sweep would end the steps of the first; the folder is free again after it."""
    folder = SweepFolder(tmp_path / "results.csv")
    with folder.locked(), pytest.raises(UsageError, match="another sweep runs in"), SweepFolder(folder.output).locked():
        pass
    with folder.locked():
        pass


def test_folder_of_something_else_is_known(tmp_path: Path) -> None:
    """A folder or a file that only has the name; an empty folder is free."""
    folder = SweepFolder(tmp_path / "results.csv")
    free = folder.is_foreign
    folder.path.mkdir()
    empty = folder.is_foreign
    (folder.path / "precious").touch()

    assert (free, empty, folder.is_foreign) == (False, False, True)


def test_collapsed_model_is_told_from_a_bad_one() -> None:
    """Its row is a failure: the error would be beyond what a picture can show."""
    base = row_of("fp32", figures={PERPLEXITY: (20.0, None)})

    assert runs.find_collapse(row_of("int4", figures={PERPLEXITY: (2e4, None)}), base) == ""
    assert "has collapsed: held-out text, word perplexity 1e+14, the baseline has 20" in runs.find_collapse(
        row_of("int4", figures={PERPLEXITY: (1e14, None)}), base
    )


HOSTILE = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "'=1", "'", "-", '=a,"b"\n', " =1 "]


@pytest.mark.parametrize("text", HOSTILE)
def test_text_that_spreadsheets_would_run(tmp_path: Path, text: str) -> None:
    """No text is a formula to a spreadsheet, numbers are as they were, and our own reader takes off what was added."""
    path = tmp_path / "results.csv"
    path.write_text(
        make_table(text, "model", [row_of("fp32", owner=text, figures={"score": (-0.5, 1e-05)})]), newline=""
    )
    with path.open(newline="") as file:
        (shown,) = csv.DictReader(file)
    (record,) = reading.read(path).records

    assert shown["model"] == text if text.startswith(" ") else f"'{text}"
    assert (shown["score"], shown["score stderr"]) == ("-0.5", "1e-05")
    assert (record.cells["model"], record.cells[reading.PEAK_OWNER]) == (text, text)


def test_file_of_others_is_read_as_it_is(tmp_path: Path) -> None:
    """Nothing is taken off where nothing was added: in a file of somebody else, or of before."""
    path = tmp_path / "results.csv"
    path.write_text("model,mode\n'=1,fp32\n")

    assert reading.read(path).records[0].cells["model"] == "'=1"
    assert MARK not in make_table("M", "model", [row_of("fp32")])
