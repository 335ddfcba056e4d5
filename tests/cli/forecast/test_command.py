from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import types
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from nncftools.analysis.forecast import Estimate, Forecast, Result, judged
from nncftools.analysis.forecast_lines import Point, Slice
from nncftools.cli import screen
from nncftools.cli.destination import lock_folder
from nncftools.cli.forecast import outputs, runs, slices
from nncftools.cli.forecast.arguments import ForecastOptions, find
from nncftools.errors import NncfToolsError, UsageError
from nncftools.limits import needs
from nncftools.session.model import Floor
from nncftools.units import MemoryUnit
from tests import made_up, waiting
from tests.cli.forecast import models
from tests.conftest import BURNERS, Run, command_line
from tests.trust.another_user import OTHER, as_another

EXPORTS = [sys.executable, str(BURNERS / "exports.py")]
MIB = 1 << 20


def written(folder: pathlib.Path) -> dict[str, Any]:
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
            points=[Point(operation="A", place=1, peak=count * peak_of * MIB)],
        )
        for count in counts
    ]


def of_layers(layers: int, done: Sequence[Slice]) -> Result:
    """Return a forecast of a model with so many layers after some runs."""
    return Result(command=[], model="", layers=layers, parameters=0, weights=0, slices=list(done))


class TestOptions:
    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["--resume"], "option --resume: only with --output"),
            (["--for", "much"], "option --for: a size"),
            (["--scratch", "nowhere"], "option --scratch: 'nowhere' is not a folder"),
            (["--time", "long"], "option --time: a time expected"),
        ],
    )
    def test_refused(self, in_process: Run, words: list[str], message: str) -> None:
        """A wrong option is refused in one line before anything runs."""
        done = in_process("forecast", *words, "--", "true", "{output}")

        assert done.returncode == UsageError.exit_code
        assert message in done.stderr
        assert done.stderr.count("\n") == 1

    def test_too_few_layers(self, in_process: Run, tmp_path: pathlib.Path) -> None:
        """A model with too few layers for three slices is refused, with what to do."""
        models.write(tmp_path / "model", 3)
        done = in_process("forecast", "--", "true", "model", "{output}")

        assert done.returncode == UsageError.exit_code
        assert "it has 3 layers: too few for three slices; `nncf-tools profile` measures the whole model" in done.stderr
        assert not (tmp_path / "memory_logs").exists()

    @pytest.mark.parametrize(
        ("config", "key"),
        [
            ({"auto_map": {"AutoModel": "mine.Mine"}}, "auto_map"),
            ({"attn_implementation": "evil/kernel"}, "attn_implementation"),
            ({"attn_implementation": {"": "paged|evil/kernel@v1:f"}}, "attn_implementation"),
            ({"experts_implementation": "evil/kernel"}, "experts_implementation"),
            ({"quantization_config": {"parts": [{"processor": "https://evil"}]}}, "processor"),
            ({"quantization_config": {"auto_map": None}}, "auto_map"),
            ({"custom": "evil--mine.Mine"}, "custom"),
            ({"custom": "mine.py"}, "custom"),
            ({"custom_pipelines": {"mine": {"impl": "mine.Mine"}}}, "custom_pipelines"),
        ],
    )
    def test_code_of_others(self, in_process: Run, tmp_path: pathlib.Path, config: dict[str, Any], key: str) -> None:
        """A config that names code or a repository is refused, however deep it does: none of it runs."""
        models.write(tmp_path / "model", 8, **config)
        done = in_process("forecast", "--from-config", "--", sys.executable, "model", "{output}")

        assert done.returncode == NncfToolsError.exit_code
        assert f"option --from-config: config.json names code or a repository in {key!r}" in done.stderr
        assert done.stderr.count("\n") == 1

    def test_names_that_load_nothing(self, in_process: Run, tmp_path: pathlib.Path) -> None:
        """The name of the model itself, and names of classes, may have any characters: nothing is loaded by them."""
        models.write(
            tmp_path / "model", 8, _name_or_path="o/m", id2label={"0": "n/a"}, chunkwise_kernel="chunk--native"
        )
        done = in_process("forecast", "--from-config", "--no-output", "--", "true", "model")

        assert "which Python runs 'true' is not known" in done.stderr


class TestPlan:
    @pytest.mark.parametrize(
        ("layers", "counts"),
        [(16, [2, 4, 6]), (30, [4, 8, 12]), (24, [3, 6, 9]), (12, [1, 3, 4]), (6, [1, 2, 3]), (80, [11, 21, 32])],
    )
    def test_three_slices(self, layers: int, counts: list[int]) -> None:
        """Three slices, of at most 40 % of the layers if so many can be made."""
        assert runs.plan_slices(range(1, layers), layers) == counts

    def test_period(self) -> None:
        """Only numbers of layers that keep the period."""
        assert runs.plan_slices([2, 4, 6, 8, 10, 12, 14], 16) == [2, 4, 6]
        assert runs.plan_slices([6, 12, 18, 24, 30], 36) == [6, 12, 18]

    def test_enough(self) -> None:
        """There is no fourth slice if the others forecast the largest."""
        assert runs.next_count(range(1, 16), of_layers(16, measured(2, 4))) == 6
        assert runs.next_count(range(1, 16), of_layers(16, measured(2, 4, 6))) is None

    @pytest.mark.parametrize(
        ("counts", "layers", "done", "fourth"),
        [
            (range(1, 30), 30, (4, 8, 12), 10),
            (range(1, 16), 16, (2, 4, 6), 5),
            (range(1, 12), 12, (1, 3, 4), 2),  # the two largest are neighbours
            (range(6, 36, 3), 36, (6, 9, 12), 12),  # none is between them: the largest runs again
            (range(1, 6), 6, (1, 2, 3), 3),
        ],
    )
    def test_fourth(self, counts: Sequence[int], layers: int, done: tuple[int, int, int], fourth: int) -> None:
        """If they are on no line, there is one more between them, never above 40 %; then the largest runs again."""
        bent = [*measured(*done[:2]), *measured(done[2], peak_of=300)]
        more = [*bent, *measured(fourth, peak_of=300 if fourth == done[2] else 100)]
        again = [*more, *measured(done[2], peak_of=300)]

        assert runs.plan_slices(counts, layers) == list(done)
        assert runs.next_count(counts, of_layers(layers, bent)) == fourth
        assert runs.next_count(counts, of_layers(layers, more)) == (None if fourth == done[2] else done[2])
        assert runs.next_count(counts, of_layers(layers, again)) is None

    def test_fourth_failed(self) -> None:
        """After a fourth slice that cannot be used, the next nearest one follows."""
        failed = [replace(part, unused="exit status 1") for part in measured(5)]
        bent = [*measured(2, 4), *failed, *measured(6, peak_of=300)]

        assert runs.next_count(range(1, 16), of_layers(16, bent)) == 3


class TestRoom:
    @pytest.mark.parametrize(
        ("room", "free", "left_s", "message"),
        [
            (1 << 20, 1 << 40, 60, "up to 512 MiB of memory are needed, 1 MiB is available"),
            (1 << 40, 1 << 10, 60, "of disk are needed, 1 KiB is free (--scratch)"),
            (1 << 40, 1 << 40, 0, "no --time is left"),
            (1 << 40, 1 << 40, 1, ""),
        ],
    )
    def test_too_little(  # noqa: PLR0913, PLR0917 — fixtures and cases
        self, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, room: int, free: int, left_s: float, message: str
    ) -> None:
        """A slice that would not fit into memory, disk or time is not started."""
        model = slices.read(models.write(tmp_path / "model", 8), ["true"])
        monkeypatch.setattr(needs, "available", lambda *_: needs.Available(machine=room))
        monkeypatch.setattr(shutil, "disk_usage", lambda _: types.SimpleNamespace(free=free))
        command = find(["touch", str(tmp_path / "model"), "{output}"], None, writes=True)
        known = Result(command=[], model="", layers=8, parameters=0, weights=0)
        request = ForecastOptions()
        nothing: Any = None
        found = runs.Runs(request, command, model, known, nothing, tmp_path, nothing).why_not(2, left_s)

        assert message in found
        assert bool(message) == bool(found)


class TestMeasured:
    @pytest.mark.parametrize(
        ("refaults_mib", "stall_s", "dropped_mib"), [(200, 0.9, 200), (200, 0.0, 0), (2, 0.9, 0), (845, 4.9, 845)]
    )
    def test_memory_pressure(self, refaults_mib: int, stall_s: float, dropped_mib: int) -> None:
        """A run that waited for pages that it had before is disturbed, however long it took; few pages do no harm."""
        totals = {"refaults": refaults_mib * MIB, "memory_stall": stall_s, "write_chars": 5}
        run = made_up.session(totals=totals, floor=Floor(size=90 * MIB, at_s=0.5, mapped=0))

        assert runs.measure_slice(4, "slice-4.json", run, "", output=1).refaults == dropped_mib * MIB

    @pytest.mark.parametrize(("later", "refaults"), [(0, 0), (300 * MIB, 300 * MIB)], ids=["quiet", "still short"])
    def test_disturbed_slice_runs_again(
        self, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, later: int, refaults: int
    ) -> None:
        """A slice during which memory was short runs again once; if it is short again, notes and interval say so."""
        model = slices.read(models.write(tmp_path / "model", 8), ["true"])
        command = find(["touch", str(tmp_path / "model"), "{output}"], None, writes=True)
        result = of_layers(8, [])
        results: Any = types.SimpleNamespace(write=lambda _: None)
        tried: list[int] = []

        def measure(_: runs.Runs, layers: int) -> Slice:
            tried.append(layers)
            (part,) = measured(layers)
            is_first = tried.count(layers) == 1
            return replace(part, refaults=(845 * MIB if is_first else later) if layers == 2 else 0)

        monkeypatch.setattr(runs.Runs, "_try", measure)
        nothing: Any = None
        runs.Runs(ForecastOptions(), command, model, result, results, tmp_path, nothing).go()
        result.finish(None)

        assert tried == [1, 2, 2, 3]
        assert [part.refaults for part in result.slices] == [0, refaults, 0]
        assert bool(refaults) == any("memory was short" in note for note in outputs.notes(result))
        assert result.forecast is not None
        assert (result.forecast.peak.high > 1000 * MIB) == bool(refaults)


class TestJudged:
    @pytest.mark.parametrize(
        ("limit", "fits"), [(80, "does not fit"), (100, "may not fit"), (150, "fits slowly"), (200, "fits")]
    )
    def test_limits(self, limit: int, fits: str) -> None:
        """Slowly between floor and comfortable amount; within the floor's interval it may not."""
        of = Estimate
        known = Forecast(of(220, 210, 230), of(100, 90, 110), of(190, 180, 200), None, None, of(1, 1, 1))

        assert judged(known, limit) == fits


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
SET = "Its comfortable amount is 3,748 MiB (3,584 to 3,891): it reads no file twice; the commands below set 3,891 MiB"
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
        ("known", "limit", "answer"),
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

    def test_words(self) -> None:
        """One layer is one layer, and nothing is said about bytes of a command that writes nothing."""
        nothing = replace(KNOWN, written=Estimate(0, 0, 0), disk=Estimate(0, 0, 0))
        text = "\n".join(outputs.sentences(judged_result(nothing), MemoryUnit.MiB))

        assert outputs.count_layers(1) == "1 layer"
        assert "It takes 22 s to 38 s on this machine" in text
        assert "writes" not in text

    def test_not_known(self) -> None:
        """A peak that is not known is said with the sizes that were seen."""
        sizes = {6: 818, 12: 828, 18: 1212}
        bent = [
            replace(part, points=[Point(operation="Compression", place=1, end=sizes[part.layers] * MIB)])
            for part in measured(6, 12, 18, peak_of=1)
        ]
        result = replace(judged_result(None, 4), slices=bent)
        expected = "Compression held 818, 828, 1,212 MiB (end) with 6, 12, 18 layers: not on a line"

        assert outputs.answer(result) == f"Unknown whether it fits into 4 GiB: {expected}"

    def test_sentences(self) -> None:
        """What follows are sentences: where the peak is, what is too little, and what it writes."""
        assert list(outputs.sentences(judged_result(KNOWN), MemoryUnit.MiB)) == [
            "Its peak is 3,686 MiB (3,584 to 3,789), in Saving; with fewer than 6 layers, it is in Compression",
            "Its floor is 1,536 MiB (1,434 to 1,638): with less, it does not work",
            SET,
            "It writes 3,072 MiB (3,072 to 3,072) and takes 22 s to 38 s on this machine",
        ]
        unknown = replace(KNOWN, written=None, disk=Estimate(GIB, GIB, GIB))
        *_, last = outputs.sentences(judged_result(unknown), MemoryUnit.GiB)
        assert last == "It needs 1.00 GiB of free disk and takes 22 s to 38 s on this machine"


class TestForecast:
    def test_peak(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """Another operation than in most slices holds the forecast peak, which is right, as are floor and bytes."""
        models.write(tmp_path / "my model", 20)
        ours = [*EXPORTS, "my model", "{output}"]
        done = nncf_tools("forecast", "--for", "1GiB", "-o", "out", "--", *ours)
        truth = nncf_tools(
            "profile", "--no-stacks", "-q", "--no-plot", "-o", "truth.json", "--", *EXPORTS, "my model", "o"
        )
        found = written(tmp_path / "out")
        known = found["forecast"]
        real = json.loads((tmp_path / "truth.json").read_text())

        assert (done.returncode, truth.returncode) == (0, 0), done.stderr
        assert (
            "Replaced in the command: 'my model' by a slice of the model, '{output}' by a scratch folder" in done.stderr
        )
        assert known["operation"] == "Export"
        assert known["peak"]["value"] == pytest.approx(real["peaks"]["rss"]["low"], rel=0.05)
        assert known["written"]["value"] == pytest.approx(5 * MIB, rel=0.05)
        assert known["floor"]["value"] < known["peak"]["value"]
        assert found["fits"] == "fits"
        assert done.stdout.startswith("Fits into 1 GiB: needs about ")
        assert (tmp_path / "out/forecast.md").read_text().startswith("**Fits into 1 GiB: needs about ")
        assert (tmp_path / "out/forecast.png").stat().st_size > 10_000
        assert "| 20, forecast |" in (tmp_path / "out/forecast.md").read_text()
        assert not (tmp_path / "o2").exists()

    def test_python_that_is_gone(self, in_process: Run, tmp_path: pathlib.Path) -> None:
        """A script whose Python is not there any more is no traceback."""
        models.write(tmp_path / "model", 8)
        (tmp_path / "script").write_text("#!/nowhere/python3\n")
        (tmp_path / "script").chmod(0o755)
        done = in_process("forecast", "--from-config", "--no-output", "--", "./script", "model")

        assert done.returncode == NncfToolsError.exit_code
        assert "which Python runs './script' is not known" in done.stderr

    @pytest.mark.process
    @pytest.mark.parametrize(
        ("python", "message"),
        [
            ("print('no program')\n", "{python} cannot be started: Exec format error"),
            ("#!/nowhere/sh\n", "{python} cannot be started: No such file or directory"),
            ("#!/bin/sh\n", "{python}: names and shapes of weights from this program expected: "),
            ("#!/bin/sh\necho no such module >&2; exit 1\n", "{python} cannot make the model: no such module"),
            ("#!/bin/sh\nprintf '\\377 bytes' >&2; exit 1\n", "{python} cannot make the model: \ufffd bytes"),
            ("#!/bin/sh\nkill -9 $$\n", "{python} cannot make the model: it printed nothing"),
        ],
        ids=["no program", "gone", "silent", "fails", "no UTF-8", "killed"],
    )
    def test_no_python(self, in_process: Run, tmp_path: pathlib.Path, python: str, message: str) -> None:
        """What is called Python and is none is one line."""
        models.write(tmp_path / "model", 8)
        (tmp_path / "python3").write_text(python)
        (tmp_path / "python3").chmod(0o755)
        done = in_process("forecast", "--from-config", "--no-output", "--", tmp_path / "python3", "model")

        assert done.returncode == NncfToolsError.exit_code
        assert message.format(python=tmp_path / "python3") in done.stderr
        assert done.stderr.count("\n") == 1

    def test_python_that_vanishes(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """A Python that is removed before it makes the first slice is named, and no slice stays behind."""
        models.write(tmp_path / "model", 8)
        tensors = [(f"layers.{number}.w", "F32", [1], 4) for number in range(8)]
        looked = json.dumps({"tensors": tensors, "layer_types": None})
        (tmp_path / "python3").write_text(f"#!/bin/sh\nrm $0; echo '{looked}'\n")
        (tmp_path / "python3").chmod(0o755)
        (tmp_path / "scratch").mkdir()
        words = ["--from-config", "--no-output", "--scratch", "scratch", "--", "./python3", "model"]
        done = nncf_tools("forecast", *words)

        assert done.returncode == NncfToolsError.exit_code
        assert done.stderr.endswith("option --from-config: ./python3 cannot be started: No such file or directory\n")
        assert "Traceback" not in done.stderr
        assert list((tmp_path / "scratch").iterdir()) == []

    @pytest.mark.long
    def test_together_with_the_rest(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """``report`` opens a slice's session, and ``monitor`` refuses what the forecast says does not fit."""
        models.write(tmp_path / "model", 8)
        done = nncf_tools("forecast", "--json", "-o", "out", "--", *EXPORTS, "model", "{output}")
        file = tmp_path / "out/forecast.json"
        slices = json.loads(done.stdout)["slices"]
        found = written(tmp_path / "out")
        found["forecast"]["floor"]["value"] = 1e15
        file.write_text(json.dumps(found))

        assert nncf_tools("report", f"out/{slices[0]['session']}").returncode == 0
        refused = nncf_tools("monitor", "--require", file, "--", "touch", "ran")
        assert "of memory is needed" in refused.stderr
        assert not (tmp_path / "ran").exists()

    def test_real_output_is_not_written(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """Of a command in the catalogue, the real output stays as it was, and nothing is left in the scratch folder."""
        models.write(tmp_path / "model", 8)
        program = tmp_path / "optimum-cli"
        program.write_text(f"#!{sys.executable}\n{(BURNERS / 'exports.py').read_text()}")
        program.chmod(0o755)
        (tmp_path / "scratch").mkdir()
        done = nncf_tools(
            *("forecast", "--scratch", "scratch", "-o", "out", "--for", "10MiB", "--"),
            *(program, "export", "openvino", "--model", "model", "real"),
        )

        assert done.returncode == 1, done.stderr
        assert done.stdout.startswith("Does not fit into 10 MiB: needs at least ")
        assert not (tmp_path / "real").exists()
        assert list((tmp_path / "scratch").iterdir()) == []

    def test_caching_by_name(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """A command that keeps its work by the model's name finds nothing of another slice, or of another forecast."""
        models.write(tmp_path / "model", 8)
        program = "import os, sys; os.mkdir(os.path.basename(sys.argv[1])); os.mkdir(sys.argv[2]); b = b'1' * 2**25"
        words = [sys.executable, "-c", f"{program}; import time; time.sleep(0.2)", "model", "{output}"]

        assert nncf_tools("forecast", "-o", "out", "--", *words).returncode == 0
        assert nncf_tools("forecast", "-o", "out", "--force", "--", *words).returncode == 0
        assert len(list(tmp_path.glob("slice-*"))) == 6

    def test_full_disk(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """A disk that fills while a slice is copied is named by its option, and nothing stays behind."""
        folder = models.write(tmp_path / "model", 8)
        models.write_weights(folder / "model.safetensors", {f"layers.{number}.w": (64, 1024) for number in range(8)})
        (tmp_path / "scratch").mkdir()
        with made_up.full_disk(100_000):
            done = nncf_tools("forecast", "--scratch", "scratch", "--", *EXPORTS, "model", "{output}")

        assert done.returncode == NncfToolsError.exit_code
        assert "option --scratch: " in done.stderr
        assert "File too large" in done.stderr
        assert list((tmp_path / "scratch").iterdir()) == []

    @pytest.mark.long
    def test_scratch_is_removed(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """A command that removes the scratch folder ends the forecast in one line; the slice that ran is kept."""
        models.write(tmp_path / "model", 8)
        (tmp_path / "scratch").mkdir()
        removes = ["sh", "-c", 'sleep 0.2; rm -r "$(dirname "$(dirname "$1")")"', "model", "{output}", "model"]
        done = nncf_tools("forecast", "--scratch", "scratch", "-o", "out", "--", *removes)

        assert done.returncode == NncfToolsError.exit_code
        assert done.stderr.endswith("option --scratch: cannot write 'scratch': No such file or directory\n")
        assert len(written(tmp_path / "out")["slices"]) == 1

    @as_another
    @pytest.mark.parametrize("scratch", [".", "../ours"])
    def test_scratch_below_another_user(self, nncf_tools: Run, tmp_path: pathlib.Path, scratch: str) -> None:
        """Nothing is made in a folder of ours below another user's, who may exchange it, however it is named."""
        models.write(tmp_path / "model", 8)
        ours = tmp_path / "theirs/ours"
        ours.mkdir(parents=True)
        os.chown(ours.parent, OTHER, OTHER)
        before = ours.stat().st_mtime_ns
        words = ["-o", tmp_path / "out", "--", "touch", tmp_path / "model", "{output}"]
        done = nncf_tools("forecast", "--scratch", scratch, *words, cwd=ours)

        assert done.returncode == NncfToolsError.exit_code
        assert "the folder 'theirs' belongs to another user (nobody)" in done.stderr
        assert ours.stat().st_mtime_ns == before

    @as_another
    @pytest.mark.parametrize(
        ("gives", "message"),
        [
            (f"chown {OTHER} above", "the folder 'above' belongs to another user (nobody)"),
            ("chmod 777 above", "all users may rename files here, or in a folder above: not sticky (chmod +t)"),
        ],
    )
    def test_scratch_between_slices(self, nncf_tools: Run, tmp_path: pathlib.Path, gives: str, message: str) -> None:
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

    @pytest.mark.parametrize("links", ["", '; ln -s "$PWD/${0##*scratch/}" scratch'])
    def test_slice_that_is_moved(self, nncf_tools: Run, tmp_path: pathlib.Path, links: str) -> None:
        """Where a slice is that the command moved, a line says."""
        models.write(tmp_path / "model", 8)
        (tmp_path / "scratch").mkdir()
        moves = f'sleep 0.2; mv "${{0%/*}}" .{links}'
        words = ["--scratch", "scratch", "-o", "out", "--", "sh", "-c", moves, "{output}", "model"]
        done = nncf_tools("forecast", *words)
        stays = sorted(tmp_path.glob("nncf-tools-forecast-*"))

        assert len(stays) == 3, done.stderr
        assert all(f"a slice stays in {str(folder)!r}; remove it\n" in done.stderr for folder in stays)

    @pytest.mark.long
    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
    def test_output_that_stays(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """What the command leaves and nobody can remove does not keep the forecast from being shown."""
        models.write(tmp_path / "model", 8)
        mounts = 'mkdir "$0" "$0/m" && mount -t tmpfs none "$0/m"; sleep 0.2'
        done = nncf_tools("forecast", "--scratch", ".", "-o", "out", "--", "sh", "-c", mounts, "{output}", "model")
        stays = sorted(tmp_path.glob("nncf-tools-forecast-*"))
        for left in tmp_path.glob("nncf-tools-forecast-*/*/m"):
            subprocess.run(["umount", left], check=True)

        assert done.returncode == 0, done.stderr
        assert len(stays) == 3
        assert all(f"a slice stays in {str(folder)!r}; remove it\n" in done.stderr for folder in stays)
        assert "Traceback" not in done.stderr
        assert written(tmp_path / "out")["forecast"] is not None

    @pytest.mark.long
    def test_output_that_is_a_file(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """What a command has written as one file is removed before the next slice, too."""
        models.write(tmp_path / "model", 8)
        (tmp_path / "scratch").mkdir()
        writes = 'test -z "$(find scratch -name "output-*")" && echo > "$0" && sleep 0.2'
        words = ["--scratch", "scratch", "-o", "out", "--", "sh", "-c", writes, "{output}", "model"]
        done = nncf_tools("forecast", *words)

        assert done.returncode == 0, done.stderr
        assert [part["unused"] for part in written(tmp_path / "out")["slices"]] == [""] * 3

    def test_fails(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """A command that fails with two slices ends the forecast, with its last line."""
        (models.write(tmp_path / "model", 8) / "fails.json").touch()
        done = nncf_tools("forecast", "-o", "out", "--", *EXPORTS, "model", "{output}")

        assert done.returncode == NncfToolsError.exit_code
        assert (
            "the command does not work with 2 of 2 slices: exit status 1: ValueError: this model cannot be"
            in done.stderr
        )
        assert "Traceback" not in done.stderr

    def test_only_one_slice_works(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """A command that works with one slice and fails with two ends the forecast: further slices would fail, too."""
        models.write(tmp_path / "model", 20)
        fails = 'sleep 0.2; grep -q "layers.:3" "$0/config.json" || { echo "ValueError: no experts"; exit 1; }'
        done = nncf_tools("forecast", "--no-output", "-o", "out", "--", "sh", "-c", fails, "model")

        assert done.returncode == NncfToolsError.exit_code
        assert "the command does not work with 2 of 3 slices: exit status 1: ValueError: no experts" in done.stderr
        assert len(written(tmp_path / "out")["slices"]) == 3

    def test_two_at_once(self, in_process: Run, tmp_path: pathlib.Path) -> None:
        """A second forecast in the same folder is refused before it runs or removes anything."""
        models.write(tmp_path / "model", 8)
        (tmp_path / "forecast.json").touch()
        with lock_folder("--output", tmp_path, ""):
            done = in_process("forecast", "--force", "-o", tmp_path, "--", *EXPORTS, "model", "{output}")

        assert done.returncode == UsageError.exit_code
        assert "another forecast writes to" in done.stderr
        assert (tmp_path / "forecast.json").exists()

    @pytest.mark.long
    def test_no_time(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """With fewer slices than three, nothing is said about the whole model; more time goes on with them."""
        models.write(tmp_path / "model", 8)
        words = ["-o", "out", "--", *EXPORTS, "model", "{output}"]
        done = nncf_tools("forecast", "--time", "0.001", *words)
        resumed = nncf_tools("forecast", "--resume", *words)
        again = nncf_tools("forecast", *words)

        assert done.returncode == 1
        assert done.stdout.startswith("Unknown: a forecast needs 3 slices, and ")
        assert written(tmp_path / "out")["forecast"] is not None
        assert resumed.returncode == 0
        assert "has a forecast already; use --resume or --force" in again.stderr

    @pytest.mark.process
    @pytest.mark.long
    def test_interrupted(self, tmp_path: pathlib.Path) -> None:
        """Ctrl-C gives what is known so far, how to go on, and leaves no slice behind."""
        (models.write(tmp_path / "model", 8) / "hangs.json").touch()
        (tmp_path / "scratch").mkdir()
        words = ["forecast", "--scratch", "scratch", "-o", "out", "--", *EXPORTS, "model", "{output}"]
        with subprocess.Popen(
            command_line(*words), cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        ) as process:
            waiting.until(lambda: bool(list((tmp_path / "scratch").glob("*/output-*/model.bin"))))
            os.killpg(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=60)

        assert process.returncode == 128 + signal.SIGINT
        assert b"continue with: --resume --output" in err
        assert out.startswith(b"Unknown: a forecast needs 3 slices, and 0 can be used\n")
        assert list((tmp_path / "scratch").iterdir()) == []
