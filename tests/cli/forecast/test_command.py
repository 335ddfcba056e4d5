from __future__ import annotations

import json
import shutil
import sys
import tempfile
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from msgspec.structs import replace

from nncftools.analysis.forecast import Estimate, Forecast, Result, judged
from nncftools.analysis.forecast_lines import Point, Slice
from nncftools.cli import screen
from nncftools.cli.forecast import outputs, runs, slices
from nncftools.cli.forecast.arguments import ForecastOptions, find
from nncftools.errors import NncfToolsError, UsageError
from nncftools.limits import needs
from nncftools.session.model import Floor
from nncftools.units import MemoryUnit
from tests import made_up
from tests.cli.forecast import models
from tests.conftest import BURNERS, Run
from tests.trust.another_user import OTHER, as_another

EXPORTS = [sys.executable, str(BURNERS / "exports.py")]
MIB = 1 << 20


def written(folder: Path) -> dict[str, Any]:
    """Return what is in ``forecast.json``."""
    found: dict[str, Any] = json.loads((folder / "forecast.json").read_text())
    return found


def measured(*counts: int, peak_of: int = 100) -> list[Slice]:
    """Return slices that ended, with ``peak_of`` MiB per layer."""
    return [
        Slice(
            layers=count,
            session="",
            duration_s=1,
            peak=count * peak_of * MIB,
            floor=1,
            comfortable=1,
            points=[Point(operation="A", place=1, peak=count * peak_of * MIB, floor=1)],
        )
        for count in counts
    ]


def of_layers(layers: int, done: Sequence[Slice]) -> Result:
    """Return a forecast of a model with so many layers after some runs."""
    return Result(command=[], model="", layers=layers, parameters=0, weights=0, slices=list(done))


class TestOptions:
    def test_too_few_layers(self, in_process: Run, tmp_path: Path) -> None:
        """A model with too few layers for three slices is refused, with what to do."""
        models.write(tmp_path / "model", 4, layer_types=list("abcd"))
        done = in_process("forecast -- true model '{output}'")

        assert done.returncode == UsageError.exit_code
        assert "it has 4 layers whose kinds repeat after 4 layers at the earliest: too few, because a" in done.stderr
        assert not (tmp_path / "memory_logs").exists()

    @pytest.mark.parametrize(
        "config, key",
        [
            ({"attn_implementation": {"": "paged|evil/kernel@v1:f"}}, "attn_implementation"),
            ({"quantization_config": {"parts": [{"processor": "https://evil"}]}}, "processor"),
            ({"quantization_config": {"auto_map": None}}, "auto_map"),
            ({"custom": "evil--mine.Mine"}, "custom"),
            ({"custom_pipelines": {"mine": {"impl": "mine.Mine"}}}, "custom_pipelines"),
        ],
    )
    def test_code_of_others(self, in_process: Run, tmp_path: Path, config: dict[str, Any], key: str) -> None:
        """A config that names code or a repository is refused, however deep it does: none of it runs."""
        models.write(tmp_path / "model", 8, **config)
        done = in_process("forecast --from-config --", sys.executable, "model", "{output}")

        assert done.returncode == NncfToolsError.exit_code
        assert f"option --from-config: config.json names code or a repository in {key!r}" in done.stderr
        assert done.stderr.count("\n") == 1

    def test_names_that_load_nothing(self, in_process: Run, tmp_path: Path) -> None:
        """The name of the model itself, and names of classes, may have any characters: nothing is loaded by them."""
        models.write(
            tmp_path / "model", 8, _name_or_path="o/m", id2label={"0": "n/a"}, chunkwise_kernel="chunk--native"
        )
        done = in_process("forecast --from-config --no-output -- true model")

        assert "it is not known which Python runs 'true'" in done.stderr

    def test_no_temporary_folder(self, in_process: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without a folder for temporary files, the smallest slice is not checked; then a line says what to do."""
        models.write(tmp_path / "model", 8)
        monkeypatch.setattr(tempfile, "tempdir", None)
        monkeypatch.setattr(tempfile, "_candidate_tempdir_list", list)
        done = in_process("forecast --no-output -- true model")

        assert "; set TMPDIR to a folder that you can write" in done.stderr


class TestPlan:
    @pytest.mark.parametrize(
        "counts, layers, slices",
        [
            (range(1, 12), 12, [1, 3, 4]),
            (range(1, 6), 6, [1, 2, 3]),
            (range(1, 80), 80, [11, 21, 32]),
            (range(6, 36, 6), 36, [6, 12, 18]),
        ],
    )
    def test_three_slices(self, counts: Sequence[int], layers: int, slices: list[int]) -> None:
        """Three slices that keep the period, of at most 40 % of the layers if so many can be made."""
        assert runs.plan_slices(counts, layers) == slices

    @pytest.mark.parametrize(
        "done, count",
        [
            (measured(2, 4), 6),
            (measured(2, 4, 6), None),
            # A fourth slice cannot be used; no operation is marked.
            ([*measured(2, 4), *measured(6, peak_of=300), replace(*measured(8), unused="exit status 1")], 7),
            ([replace(part, points=[]) for part in [*measured(2, 4), *measured(6, peak_of=300)]], None),
        ],
    )
    def test_next(self, done: Sequence[Slice], count: int | None) -> None:
        """There is no further slice if the others forecast the largest, or if no operation shows what takes over."""
        assert runs.next_count(range(1, 16), of_layers(16, done)) == count

    @pytest.mark.parametrize(
        "counts, layers, done, fourth",
        [
            (range(1, 16), 16, (2, 4, 6), 8),
            (range(6, 36, 3), 36, (6, 9, 12), 18),
            (range(1, 7), 7, (1, 2, 3), 3),  # no other has up to half of the layers: the largest runs again
        ],
    )
    def test_fourth(self, counts: Sequence[int], layers: int, done: tuple[int, int, int], fourth: int) -> None:
        """If slices are on no line, another one has half of the layers; then the doubtful slice runs again."""
        bent = [*measured(*done[:2]), *measured(done[2], peak_of=300)]
        more = sorted([*bent, *measured(fourth, peak_of=300)], key=lambda part: part.layers)
        again = sorted([*more, *measured(fourth, peak_of=300)], key=lambda part: part.layers)

        assert runs.next_count(counts, of_layers(layers, bent)) == fourth
        assert runs.next_count(counts, of_layers(layers, more)) == (None if fourth == done[2] else fourth)
        assert runs.next_count(counts, of_layers(layers, again)) is None


@pytest.fixture
def forecasting(tmp_path: Path) -> runs.Runs:
    """Return the runs of a forecast for a model of 8 layers."""
    folder = models.write(tmp_path / "model", 8)
    return runs.Runs(
        request=ForecastOptions(),
        command=find(["touch", str(folder), "{output}"], None, writes=True),
        model=slices.read(folder, ["true"]),
        result=of_layers(8, []),
        results=mock.Mock(),
        scratch=tmp_path,
        runner=mock.Mock(),
        at_end=mock.Mock(),
    )


class TestRoom:
    @pytest.mark.parametrize(
        "room, free, left_s, message",
        [
            (1 << 20, 1 << 40, 60, "up to 512 MiB of memory are needed, 1 MiB is available"),
            (1 << 40, 1 << 10, 60, "of disk are needed, 1 KiB is free (--scratch)"),
            (1 << 40, 1 << 40, 0, "no --time is left"),
            (1 << 40, 1 << 40, 1, ""),
        ],
    )
    def test_too_little(  # noqa: PLR0913, PLR0917 — fixtures and cases
        self,
        forecasting: runs.Runs,
        monkeypatch: pytest.MonkeyPatch,
        room: int,
        free: int,
        left_s: float,
        message: str,
    ) -> None:
        """A slice that would not fit into memory, disk or time is not started."""
        monkeypatch.setattr(needs, "available", lambda *_: needs.Available(machine=room))
        monkeypatch.setattr(shutil, "disk_usage", lambda _: types.SimpleNamespace(free=free))
        found = forecasting.why_not(2, left_s)

        assert message in found
        assert bool(message) == bool(found)


class TestMeasured:
    @pytest.mark.parametrize("refaults_mib, stall_s, dropped_mib", [(200, 0.0, 0), (2, 0.9, 0), (845, 4.9, 845)])
    def test_memory_pressure(self, refaults_mib: int, stall_s: float, dropped_mib: int) -> None:
        """A run that waited for pages that it had before is disturbed, however long it took; few pages do no harm."""
        totals = {"refaults": refaults_mib * MIB, "memory_stall": stall_s, "write_chars": 5}
        run = made_up.session(totals=totals, duration_s=200.0, floor=Floor(size=90 * MIB, at_s=0.5, mapped=0))

        assert runs.measure_slice(4, "slice-4.json", run, "", output=1).refaults == dropped_mib * MIB

    @pytest.mark.parametrize("later", [0, 300 * MIB], ids=["quiet", "still short"])
    def test_disturbed_slice_runs_again(
        self, forecasting: runs.Runs, monkeypatch: pytest.MonkeyPatch, later: int
    ) -> None:
        """A slice during which memory was short runs again once; if memory is short again, a note says so."""
        refaults = {1: [0], 2: [845 * MIB, later], 3: [0]}
        tried: list[int] = []

        def measure(_: runs.Runs, layers: int) -> Slice:
            tried.append(layers)
            return replace(*measured(layers), refaults=refaults[layers].pop(0))

        monkeypatch.setattr(runs.Runs, "_try", measure)
        forecasting.go()
        result = forecasting.result

        assert tried == [1, 2, 2, 3]
        assert [part.refaults for part in result.slices] == [0, later, 0]
        assert bool(later) == any("memory was short" in note for note in outputs.notes(result))
        result.finish(None)
        assert outputs.answer(result).startswith("Needs at most" if later else "Needs about")


GIB = 1 << 30
KNOWN = Forecast(
    peak=Estimate(3.6 * GIB, 3.5 * GIB, 3.7 * GIB),
    floor=Estimate(1.5 * GIB, 1.4 * GIB, 1.6 * GIB),
    comfortable=Estimate(3.66 * GIB, 3.5 * GIB, 3.8 * GIB),
    written=Estimate(3 * GIB, 3 * GIB, 3 * GIB),
    disk=None,
    time=Estimate(30, 22, 38),
    operation="Saving",
    holds_from=6,
    before="Compression",
)
ENOUGH = "about 3.7 GiB (3.5 to 3.8), at least 1.4"
SLOW = "Fits slowly into 2 GiB: needs at least 1.4 GiB, and about 3.7 GiB to read no file twice"
OPEN = replace(KNOWN, comfortable=replace(KNOWN.comfortable, is_at_least=True))
GROWING = replace(KNOWN, floor=replace(KNOWN.floor, is_at_least=True))


def judged_result(known: Forecast | None, limit: float | None = None) -> Result:
    """Return a forecast for a model of 16 layers that is asked about a limit in GiB."""
    size = None if limit is None else round(limit * GIB)
    fits = None if known is None or size is None else judged(known, size)
    found = Result(command=["export", "M"], model="M", layers=16, parameters=0, weights=0)
    return replace(found, forecast=known, limit=size, fits=fits, slices=measured(2, 4))


class TestAnswer:
    @pytest.mark.parametrize(
        "known, limit, answer",
        [
            (KNOWN, 4, f"Fits into 4 GiB: needs {ENOUGH}"),
            (KNOWN, 2, SLOW),
            (KNOWN, 1.5, "May not fit into 1.5 GiB: needs from 1.4 GiB to 1.6 GiB"),
            (GROWING, 2, "May not fit into 2 GiB: needs from 1.4 GiB to 3.7 GiB"),
            (KNOWN, 0.5, "Does not fit into 512 MiB: needs at least 1.4 GiB"),
            (KNOWN, None, f"Needs {ENOUGH}: peak 3.6 GiB, with all 16 layers"),
            (OPEN, None, "Needs at least 3.5 GiB: peak 3.6 GiB, with all 16 layers"),
            (OPEN, 8, "May not fit into 8 GiB: needs 1.4 GiB or more"),
            (None, 4, "Unknown whether it fits into 4 GiB: a forecast needs 3 slices, and 2 can be used"),
            (None, None, "Unknown: a forecast needs 3 slices, and 2 can be used"),
        ],
    )
    def test_first_line(self, known: Forecast | None, limit: float | None, answer: str) -> None:
        """The first line of text and Markdown answers --for, or says what is needed, or that it is not known."""
        shown = outputs.make_shown(judged_result(known, limit), MemoryUnit.MiB)

        assert screen.plain(shown.text).splitlines()[0] == answer
        assert shown.markdown.splitlines()[0] == f"**{answer}**"

    @pytest.mark.parametrize(
        "operation, sizes, text",
        [
            (
                "Compression",
                {6: 818, 12: 828, 18: 1212},
                "Compression held 818, 828, 1,212 MiB (end) with 6, 12, 18 layers: these",
            ),
            (
                "Work",
                {2: 180, 4: 188, 6: 256, 8: 324},
                "Work held 180, 188, 256, 324 MiB (end) with 2, 4, 6, 8 layers: these",
            ),
            ("", {2: 200, 4: 400, 6: 600}, "the command held 200, 400, 600 MiB (peak) with 2, 4, 6 layers, outside"),
        ],
    )
    def test_not_known(self, operation: str, sizes: dict[int, int], text: str) -> None:
        """A peak that is not known, or that no operation has, is said with the sizes of all slices."""
        held = []
        for part in measured(*sizes):
            point = Point(operation=operation, place=1, end=sizes[part.layers] * MIB)
            held.append(replace(part, peak=sizes[part.layers] * MIB, points=[point] if operation else []))
        result = replace(judged_result(None, 4), slices=held, layer_parameters=1)

        assert outputs.answer(result).startswith(f"Unknown whether it fits into 4 GiB: {text}")

    @pytest.mark.parametrize(
        "weights, limit, fits, note",
        [
            (8000, 300, "fits", "the peak hardly grows with the number of layers"),  # never loaded at once
            (404, 300, "may not fit", "all weights (404 MiB) may need more memory than the slices show"),
            (404, 640, "fits", "all weights (404 MiB) may need more memory"),  # less than three copies of the weights
        ],
    )
    def test_hidden_weights(self, weights: int, limit: int, fits: str, note: str) -> None:
        """A flat peak above the weights of each slice says nothing: its upper bound grows with all weights."""
        point = Point(operation="A", place=1, start=12 * MIB, peak=231 * MIB, floor=1)
        flat = [replace(part, peak=231 * MIB, points=[point]) for part in measured(2, 4, 6)]
        result = replace(of_layers(16, flat), weights=weights * MIB, parameters=16, layer_parameters=1)
        result.finish(limit * MIB)

        assert result.fits == fits
        assert next(outputs.notes(result)).startswith(note)


class TestForecast:
    def test_peak(self, nncf_tools: Run, tmp_path: Path) -> None:
        """The forecast peak, in another operation than in most slices, is right, as are floor and bytes."""
        models.write(tmp_path / "my model", 20)
        (tmp_path / "scratch").mkdir()
        ours = [*EXPORTS, "my model", "{output}"]
        done = nncf_tools("forecast --for 10MiB --scratch scratch -o out --", *ours)
        nncf_tools("profile --no-stacks -q --no-plot -o truth.json --", *EXPORTS, "my model", "o")
        found = written(tmp_path / "out")
        known = found["forecast"]
        real = json.loads((tmp_path / "truth.json").read_text())

        assert done.returncode == 1, done.stderr
        assert done.stdout.startswith("Does not fit into 10 MiB: needs at least ")
        assert "Replaced in the command: 'my model' by a slice of the model, '{output}' by a scratch" in done.stderr
        assert (known["operation"], found["fits"]) == ("Export", "does not fit")
        assert known["peak"]["value"] == pytest.approx(real["peaks"]["rss"]["low"], rel=0.05)
        assert known["written"]["value"] == pytest.approx(5 * MIB, rel=0.05)
        assert known["floor"]["value"] < known["peak"]["value"]
        assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".json", ".md", ".png", ".log"}
        assert list((tmp_path / "scratch").iterdir()) == []

        known["floor"]["value"] = 1e15
        (tmp_path / "out/forecast.json").write_text(json.dumps(found))
        refused = nncf_tools("monitor --require out/forecast.json -- touch ran")
        assert "of memory is needed" in refused.stderr

    @pytest.mark.process
    @pytest.mark.parametrize(
        "python, message",
        [
            ("print('no program')\n", "{python} cannot be started: Exec format error"),
            ("#!/bin/sh\n", "{python}: output with names and shapes of weights expected: "),
            ("#!/bin/sh\necho no such module >&2; exit 1\n", "{python} cannot make the model: no such module"),
            ("#!/bin/sh\nkill -9 $$\n", "{python} cannot make the model: it printed nothing"),
        ],
        ids=["no program", "silent", "fails", "killed"],
    )
    def test_no_python(self, in_process: Run, tmp_path: Path, python: str, message: str) -> None:
        """What is called Python and is none is one line."""
        models.write(tmp_path / "model", 8)
        (tmp_path / "python3").write_text(python)
        (tmp_path / "python3").chmod(0o755)
        done = in_process("forecast --from-config --no-output --", tmp_path / "python3", "model")

        assert done.returncode == NncfToolsError.exit_code
        assert message.format(python=tmp_path / "python3") in done.stderr
        assert done.stderr.count("\n") == 1

    def test_full_disk(self, nncf_tools: Run, tmp_path: Path) -> None:
        """A disk that fills while a slice is copied is named by its option, and nothing stays behind."""
        folder = models.write(tmp_path / "model", 8)
        models.write_weights(folder / "model.safetensors", {f"layers.{number}.w": (64, 1024) for number in range(8)})
        (tmp_path / "scratch").mkdir()
        with made_up.full_disk(100_000):
            done = nncf_tools("forecast --scratch scratch --", *EXPORTS, "model", "{output}")

        assert done.returncode == NncfToolsError.exit_code
        assert "option --scratch: " in done.stderr
        assert "File too large" in done.stderr
        assert list((tmp_path / "scratch").iterdir()) == []

    @as_another
    @pytest.mark.parametrize(
        "gives, message",
        [
            (f"chown {OTHER} above", "the folder 'above' belongs to another user (nobody)"),
            (
                "chmod 777 above",
                "all users may rename files in this folder or a folder above: set the sticky bit (chmod +t)",
            ),
        ],
    )
    def test_scratch_between_slices(self, nncf_tools: Run, tmp_path: Path, gives: str, message: str) -> None:
        """Where another user may exchange the scratch folder by then, there is no further slice."""
        models.write(tmp_path / "model", 8)
        scratch = tmp_path / "above/scratch"
        scratch.mkdir(parents=True)
        words = ["--scratch", "above/scratch", "-o", "out", "--"]
        done = nncf_tools("forecast", *words, "sh", "-c", f"sleep 0.2; {gives}", "{output}", "model")

        assert done.returncode == NncfToolsError.exit_code
        assert done.stderr.endswith(f"option --scratch: cannot write 'above/scratch': {message}\n")
        assert len(written(tmp_path / "out")["slices"]) == 1
        assert list(scratch.iterdir()) == []

    @pytest.mark.parametrize(
        "script",
        [
            'mv "${0%/*}" .',
            'mv "${0%/*}" .; ln -s "$PWD/${0##*scratch/}" scratch',
            'mkdir "$0"; { while test -e "${0%/*}"; do sleep 0.01; done; mkdir -p "$0"; } &',
        ],
        ids=["moved", "moved and linked", "made again"],
    )
    def test_slice_that_stays(self, nncf_tools: Run, tmp_path: Path, script: str) -> None:
        """Where the command moved a slice, or a daemon made the folder again, a line says so."""
        models.write(tmp_path / "model", 8)
        (tmp_path / "scratch").mkdir()
        words = ["--scratch", "scratch", "-o", "out", "--", "sh", "-c", f"sleep 0.2; {script}", "{output}", "model"]
        done = nncf_tools("forecast", *words)
        stays = sorted(tmp_path.glob("**/nncf-tools-forecast-*"))

        assert len(stays) == 3, done.stderr
        assert all(f"files of a slice stay in {str(folder)!r}; remove them\n" in done.stderr for folder in stays)

    def test_only_one_slice_works(self, nncf_tools: Run, tmp_path: Path) -> None:
        """A command that works with one slice and fails with two ends the forecast: further slices would fail, too."""
        models.write(tmp_path / "model", 20)
        fails = (
            'mkdir "${0##*/}"; sleep 0.2; grep -q "layers.:3" "$0/config.json" || { echo "ValueError: no"; exit 1; }'
        )
        done = nncf_tools("forecast --no-output -o out -- sh -c", fails, "model")

        assert done.returncode == NncfToolsError.exit_code
        assert (
            "the command failed in 2 of 3 runs with fewer layers: exit status 1: ValueError: no; output" in done.stderr
        )
        assert len(written(tmp_path / "out")["slices"]) == 3
        assert len(list(tmp_path.glob("slice-*-of-20-????????"))) == 3  # also for commands that keep work by name

    @pytest.mark.long
    def test_no_time(self, nncf_tools: Run, tmp_path: Path) -> None:
        """With fewer slices than three, nothing is said about the whole model; more time goes on with them."""
        models.write(tmp_path / "model", 8)
        words = ["-o", "out", "--", *EXPORTS, "model", "{output}"]
        done = nncf_tools("forecast --time 0.001", *words)
        resumed = nncf_tools("forecast --resume", *words)
        again = nncf_tools("forecast", *words)

        assert done.returncode == 1
        assert done.stdout.startswith("Unknown: a forecast needs 3 slices, and ")
        assert written(tmp_path / "out")["forecast"] is not None
        assert resumed.returncode == 0
        assert "has a forecast already; use --resume or --force" in again.stderr
