from __future__ import annotations

import contextlib
import csv
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from nncftools.cli.sweep import SweepOptions, checks, steps
from nncftools.cli.sweep.results import make_stamp
from nncftools.errors import NncfToolsError, UsageError
from tests.cli.sweep.inputs import OTHER, WORDS, write_inputs
from tests.conftest import Run, command_line
from tests.surroundings import HANGING_S
from tests.trust import another_user
from tests.waiting import until

GRID = """
[[configuration]]
name = "int8"
mode = "int8_asym"
[[configuration]]
name = "fail"
mode = "nf4"
[[configuration]]
name = "wait"
mode = "int4_sym"
"""


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """Write the inputs of a sweep, and a grid; return their folder."""
    (tmp_path / "grid.toml").write_text(GRID)
    return write_inputs(tmp_path)


def request(folder: Path, **options: Any) -> SweepOptions:  # noqa: ANN401 — any option
    """Return the options of a dry run, with a model and texts."""
    texts = {"text": folder / "text.txt", "calibration": folder / "calibration.txt"}
    usual = {"model": folder / "model", "output": folder / "results.csv", "dry_run": True, **texts}
    return SweepOptions(**{**usual, **options})


def words(folder: Path, *more: object) -> list[str]:
    """Return the command line of a sweep over the made-up grid."""
    options = ["--text", "text.txt", "--output", "results.csv", "--grid", "grid.toml", "--python", folder / "python"]
    return command_line("sweep --model model", *options, *more)


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a sweep whose configuration "wait" waits the first time."""
    return {**os.environ, "SWEEP_WAITED": str(folder / "waited")}


def of_cluster(folder: Path) -> dict[str, str]:
    """Return the environment of a scheduler, its workers and a sweep that sends them its inputs."""
    return {**environment(folder), "XDG_CACHE_HOME": str(folder / "cache")}


def rows(folder: Path) -> list[dict[str, str]]:
    """Return the results so far."""
    file = folder / "results.csv"
    return list(csv.DictReader(file.read_text(encoding="utf-8").splitlines())) if file.exists() else []


@pytest.fixture
def run(in_process: Run, inputs: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Run sweeps to their ends in this process, which has Matplotlib; signals are as before when they have ended."""
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    monkeypatch.setenv("SWEEP_WAITED", environment(inputs)["SWEEP_WAITED"])
    yield lambda *more: in_process(*words(inputs, *more)[len(command_line()) :])
    for number, handler in before.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


class TestChecks:
    @pytest.mark.parametrize(
        "name, content, expected",
        [
            ("a.txt", b" \n", "'.*a.txt' contains no words"),
            ("a.txt", b"\xff\xfe", "is not a text in UTF-8"),
            ("a.jsonl", b'{"text": "one"}\n{"words": 1}\n', "line 2: an object with a text as 'text' expected"),
        ],
    )
    def test_text_that_is_none_is_refused(self, inputs: Path, name: str, content: bytes, expected: str) -> None:
        """The option, the file and the line are named."""
        (inputs / name).write_bytes(content)

        with pytest.raises(NncfToolsError, match=f"option --prompts: .*{expected}"):
            checks.make_plan(request(inputs, prompts=inputs / name))

    @pytest.mark.process
    def test_results_do_not_replace_what_is_no_result(self, inputs: Path) -> None:
        """Neither inputs, nor a file or folder that only has the name; nor do they change the model."""
        cases: list[tuple[dict[str, Any], str]] = [
            ({"output": inputs / "model" / "r.csv"}, "is in the folder of the model"),
            (
                {"output": inputs / "held.csv", "text": inputs / "held.md"},
                "would replace the file of --text",
            ),
            ({"output": inputs / "made.csv", "dry_run": False, "resume": True}, "'made.csv' exists|made.csv' exists"),
            (
                {"output": inputs / "mine.csv", "dry_run": False, "force": True},
                "mine.sweep' exists and is not the folder of a sweep",
            ),
        ]
        (inputs / "held.md").write_text(WORDS)
        (inputs / "made.csv").write_text("by hand")
        (inputs / "mine.sweep").mkdir()
        (inputs / "mine.sweep" / "precious").touch()
        for options, expected in cases:
            with pytest.raises(UsageError, match=expected):
                checks.make_plan(request(inputs, python=str(inputs / "python"), **options))

        assert (inputs / "mine.sweep" / "precious").exists()

    def test_calibration_on_the_text_is_refused(self, inputs: Path) -> None:
        """Results would look too good; the words that both texts hold are named."""
        (inputs / "calibration.txt").write_text(OTHER + WORDS)

        with pytest.raises(UsageError, match=r"option --calibration: .*each process has memory of its own"):
            checks.make_plan(request(inputs))

    def test_no_calibration_is_needed_without_a_configuration_that_needs_it(self, inputs: Path) -> None:
        """What is chosen counts, not the whole grid."""
        plan, _ = checks.make_plan(request(inputs, only=["int4"], calibration=None))

        assert [configuration.name for configuration in plan.chosen] == ["fp32", "int4"]

    @pytest.mark.process
    def test_missing_packages_are_named_with_how_to_install_them(self, inputs: Path) -> None:
        """One line names what is missing and both recipes."""
        recipes = r"(?s)no nncf and no openvino and no optimum-intel.*nncf-tools\[nncf\]'.*--no-deps optimum-intel"
        with pytest.raises(NncfToolsError, match=recipes):
            checks.make_plan(request(inputs, dry_run=False))

    def test_kind_needs_a_model_and_two_functions(self, inputs: Path) -> None:
        """The user's file is checked without running it, and language options do not go with it."""
        kind = inputs / "kind.py"
        kind.write_text("def calibration(): ...\n")
        without: dict[str, Any] = {"text": None, "calibration": None, "kind": kind}
        with pytest.raises(UsageError, match=r"option --model: with --kind, a file \.xml \(OpenVINO\) or \.onnx"):
            checks.make_plan(request(inputs, **without))
        (inputs / "m.onnx").touch()
        with pytest.raises(UsageError, match="no function 'score'"):
            checks.make_plan(request(inputs, **without, model=inputs / "m.onnx"))
        with pytest.raises(UsageError, match="option --text: only for language models"):
            checks.make_plan(request(inputs, kind=kind))

    @another_user.as_another
    @pytest.mark.parametrize(
        "option, name",
        [
            ("grid", "grid.toml"),
            ("kind", "kind.py"),
            ("include-path", "shared"),
            ("include-path", "shared/tasks/utils.py"),
        ],
    )
    @pytest.mark.parametrize(
        "owner, mode, why", [(another_user.OTHER, 0o755, "belongs"), (0, 0o777, "may be changed by every user")]
    )
    def test_file_of_another_user_is_refused(  # noqa: PLR0913, PLR0917 — fixtures and cases
        self, inputs: Path, option: str, name: str, owner: int, mode: int, why: str
    ) -> None:
        """A file that another user may write to decides nothing that runs; what was read once is what runs."""
        (inputs / "shared/tasks").mkdir(parents=True)
        for made in ("shared/tasks/utils.py", "m.onnx"):
            (inputs / made).touch()
        (inputs / "kind.py").write_text("def calibration(): ...\ndef score(): ...\n")
        options: dict[str, Any] = {
            "grid": {"grid": str(inputs / "grid.toml")},
            "kind": {"text": None, "calibration": None, "kind": inputs / "kind.py", "model": inputs / "m.onnx"},
            "include-path": {"include_path": inputs / "shared/tasks"},
        }[option]
        plan, _ = checks.make_plan(request(inputs, **options))
        os.chown(inputs / name, owner, owner)
        (inputs / name).chmod(mode)

        with pytest.raises(UsageError, match=f"option --{option}: .*{name}' .*{why}"):
            checks.make_plan(request(inputs, **options))
        assert option != "kind" or plan.code == (inputs / name).read_text()

    @pytest.mark.process
    @pytest.mark.parametrize(
        "script, message",
        [("print()", "cannot be started: Exec format error"), ("#!/bin/sh\nexec sleep 100\n", "did not answer within")],
    )
    def test_python_that_does_not_answer(
        self, inputs: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
    ) -> None:
        """A Python that cannot be started, or does not answer, is no traceback."""
        monkeypatch.setattr(checks, "_TIMEOUT_S", 0.1)
        (inputs / "python").write_text(script)

        with pytest.raises(UsageError, match=rf"option --python: '.*/python' {message}"):
            checks.make_plan(request(inputs, python=str(inputs / "python"), dry_run=False))


@pytest.mark.process
class TestRuns:
    @pytest.mark.long
    def test_killed_sweep_goes_on(self, inputs: Path, run: Run) -> None:
        """After kill −9, what ended is there, the step that ran has ended, and only what is missing runs."""
        first = subprocess.Popen(
            words(inputs), env=environment(inputs), cwd=inputs, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        until((inputs / "waited").exists)
        first.kill()
        first.communicate(timeout=HANGING_S)
        before = rows(inputs)
        pid = int((inputs / "waited").read_text())
        until(lambda: not Path(f"/proc/{pid}").exists())
        done = run("--resume")

        assert [row["mode"] for row in before] == ["fp32", "int8 asymmetric", "nf4"]
        assert done.returncode == 1  # one has failed
        assert "Running wait" in done.stderr
        assert "Running int8" not in done.stderr
        assert rows(inputs)[:3] == before
        assert [row["plot name"] for row in rows(inputs)] == ["", "int8", "fail", "wait"]

    def test_results_are_shown_and_explained(self, inputs: Path, run: Run) -> None:
        """A whole sweep ends with table and picture, the verdict of what failed, and what columns mean."""
        (inputs / "waited").touch()
        done = run("--recommend", "error<=20%")
        table = (inputs / "results.md").read_text()
        failed = rows(inputs)[2]

        assert done.returncode == 1, done.stderr
        assert " is the smallest with error up to 20%: " in done.stdout.splitlines()[0]
        assert "outside the measured processes" in done.stderr
        assert (inputs / "results.png").stat().st_size > 1000
        assert failed["failed"] == "compress: exit status 1: ValueError: a channel size of 576 cannot be divided by 100"
        assert failed["failed"] in table
        assert "rolling log-likelihood" in table

    @pytest.mark.long
    def test_sweep_goes_on(self, inputs: Path, run: Run) -> None:
        """Configurations are added, a chosen one that failed runs again; nothing is replaced, or mixed with others."""
        (inputs / "waited").touch()
        run("--only", "int8")
        refused = run()
        added = run("--only", "wait", "--only", "fail", "--resume")
        again = run("--only", "fail", "--resume")

        assert (refused.returncode, "has a sweep already; use --resume or --force" in refused.stderr) == (2, True)
        assert "[3/3] wait" in added.stderr
        assert [row["plot name"] for row in rows(inputs)] == ["", "int8", "fail", "wait"]
        assert "Running fail" in again.stderr
        assert "Running fail" not in run("--resume").stderr

        (inputs / "text.txt").write_text(OTHER)
        other = run("--resume")
        assert (other.returncode, "it was made with a different text" in other.stderr) == (2, True)

    @pytest.mark.long
    def test_tasks_of_lm_eval_are_columns(self, inputs: Path, run: Run) -> None:
        """Tasks of lm-evaluation-harness have columns of their own; the standard tasks have the standard ones."""
        done = run("--only", "int8", "--tasks", "wikitext", "--tasks", "arc_easy:acc")
        baseline, int8 = rows(inputs)

        assert done.returncode == 0, done.stderr
        assert (int8["arc_easy, acc"], int8["arc_easy, acc stderr"]) == ("0.75", "0.01")
        assert baseline["wikitext, word perplexity"] == "9.5"
        assert "by lm-evaluation-harness" in (inputs / "results.md").read_text()


@contextlib.contextmanager
def of_dask(folder: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a scheduler or a worker of Dask."""
    command = [sys.executable, "-m", *words]
    nowhere = subprocess.DEVNULL
    with subprocess.Popen(command, env=of_cluster(folder), cwd=folder, stdout=nowhere, stderr=nowhere) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def scheduler(inputs: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Run a scheduler; yield its process and its address."""
    pytest.importorskip("distributed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    words = ("distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", port, "--no-dashboard")
    with of_dask(inputs, *words) as process:
        yield process, f"tcp://127.0.0.1:{port}"


class TestCluster:
    @pytest.mark.long
    @pytest.mark.process
    def test_lost_worker_does_not_lose_its_configuration(
        self, inputs: Path, scheduler: tuple[subprocess.Popen[bytes], str]
    ) -> None:
        """Two workers share the configurations; when one is killed, its configuration runs on the other one."""
        _, address = scheduler
        worker = ("distributed.cli.dask_worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard")
        with of_dask(inputs, *worker), of_dask(inputs, *worker):
            sweep = subprocess.Popen(
                words(inputs, "--scheduler", address),
                env=of_cluster(inputs),
                cwd=inputs,
                text=True,
                stderr=subprocess.PIPE,
            )
            until((inputs / "waited").exists)
            until((inputs / "waited").read_text)
            above = psutil.Process(int((inputs / "waited").read_text())).parents()
            next(process for process in above if "distributed.cli.dask_worker" in process.cmdline()).kill()
            _, error = sweep.communicate(timeout=HANGING_S)

        assert sweep.returncode == 1, error  # one has failed
        assert "wait: its worker is lost; it runs again" in error
        assert {row["plot name"] for row in rows(inputs) if not row["failed"]} == {"", "int8", "wait"}

    @pytest.mark.long
    @pytest.mark.process
    def test_scheduler_that_hangs(self, inputs: Path, scheduler: tuple[subprocess.Popen[bytes], str]) -> None:
        """A signal ends a sweep that waits for a scheduler that no longer answers."""
        hangs, address = scheduler
        command = words(inputs, "--scheduler", address)
        nowhere = subprocess.DEVNULL
        with subprocess.Popen(command, env=of_cluster(inputs), cwd=inputs, stdout=nowhere, stderr=nowhere) as sweep:
            until(lambda: len(psutil.Process(hangs.pid).net_connections("tcp")) > 1 or sweep.poll() is not None)
            hangs.send_signal(signal.SIGSTOP)
            until(lambda: psutil.Process(hangs.pid).status() == psutil.STATUS_STOPPED)
            sweep.terminate()

            assert sweep.wait(HANGING_S) == 128 + signal.SIGTERM

    def test_inputs_are_sent_once(self, inputs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A worker that does not see the same files lacks them until they were sent."""
        monkeypatch.setenv("XDG_CACHE_HOME", str(inputs / "cache"))
        paths = {"model": str(inputs / "model"), "text": str(inputs / "text.txt")}
        same = {name: make_stamp(Path(path)) for name, path in paths.items()}
        other = {**same, "text": "another"}

        assert not steps.lacks_inputs(paths, same, "abc")
        assert steps.lacks_inputs(paths, other, "abc")
        sent = steps.pack({f"{name}/{Path(path).name}": Path(path) for name, path in paths.items()})
        steps.receive(sent, "abc")
        steps.receive(sent, "abc")
        assert not steps.lacks_inputs(paths, other, "abc")
        received = inputs / "cache" / "nncf-tools" / "sweep" / "abc"
        assert (received / "text" / "text.txt").read_text() == WORDS
        assert (received / "model" / "model" / "config.json").exists()
