"""What `fit` and `sweep` do in a folder that another user may write to: only what they were asked for."""

from __future__ import annotations

import os
import pathlib
import shlex
import subprocess
import sys

import pytest

from nncftools.backports import running
from nncftools.errors import UsageError
from tests.cli.forecast import models
from tests.conftest import BURNERS, HANGING_S, Run, command_line
from tests.trust.another_user import BECOMES_ANOTHER, OTHER, as_another

pytestmark = pytest.mark.process

DATA = pathlib.Path(__file__).parents[1] / "data"

PYTHON = """#!/bin/sh
[ "$1" = -c ] && {{ echo "[]"; exit; }}
for times in $(seq 1000); do [ -e {shared}/swapped ] && break; sleep 0.02; done
exec {python} "$@"
"""
"""Stand in for a Python that has NNCF: it runs the step when the other user has done what he can."""
SWAPS = """
echo
until [ -e results.sweep/export/export.log ]; do sleep 0.01; done
mkdir -p evil/export
job=export/export.job.json
echo 'open("ran", "w")' > evil.py
change='s/"module": "[a-z_.]*"/"module": "cProfile"/; s/"words": [^]]*/"words": ["evil.py"/'
[ ! -e results.sweep/$job ] || sed "$change" results.sweep/$job > evil/$job
mv results.sweep taken
mv evil results.sweep
touch swapped
"""
"""Put another folder in the place of a sweep's, with its job changed, as soon as the job would be there."""


def planted(trap: str, log: pathlib.Path, victim: pathlib.Path) -> None:
    """Put a trap in the place of a log: what is written there goes to the victim, or to its owner."""
    if trap == "link":
        log.symlink_to(victim)
    elif trap == "FIFO":
        os.mkfifo(log)
    else:
        log.write_text("theirs")
        os.chown(log, OTHER, OTHER)


class TestLogOfARun:
    @as_another
    @pytest.mark.parametrize(
        ("trap", "why"),
        [
            ("link", "it is a symbolic link, a device or a pipe"),
            ("FIFO", "it is a symbolic link, a device or a pipe"),
            pytest.param("file", "it belongs to another user (nobody)", marks=pytest.mark.long),
        ],
    )
    def test_trap(self, nncf_tools: Run, tmp_path: pathlib.Path, shared: pathlib.Path, trap: str, why: str) -> None:
        """A log that leads to another file, or is another user's, is refused before a byte of it changes."""
        shared.chmod(0o1777)
        victim, log = tmp_path / "victim", shared / "run-1.log"
        victim.write_text("mine")
        planted(trap, log, victim)
        done = nncf_tools("fit", "--free-only", "-o", shared, "--prepare", "echo oh", "--", "touch", tmp_path / "ran")

        assert done.returncode == 1
        assert done.stderr.endswith(f"nncf-tools: error: option --output: cannot write {str(log)!r}: {why}\n")
        assert victim.read_text() == "mine"
        assert trap != "file" or log.read_text() == "theirs"
        assert not (tmp_path / "ran").exists()


@as_another
class TestFolderOfAnotherUser:
    def test_search(self, nncf_tools: Run, tmp_path: pathlib.Path, shared: pathlib.Path) -> None:
        """A folder of another user is refused as in the default folder, before anything runs."""
        subprocess.run([*BECOMES_ANOTHER, "mkdir", "theirs"], cwd=shared, check=True)
        done = nncf_tools("fit", "--free-only", "-o", shared / "theirs", "--", "touch", tmp_path / "ran")

        assert done.returncode == 2
        assert "the folder 'theirs' belongs to another user (" in done.stderr
        assert list((shared / "theirs").iterdir()) == []
        assert not (tmp_path / "ran").exists()

    @pytest.mark.parametrize("output", ["out", "above/out"])
    def test_swapped(self, nncf_tools: Run, shared: pathlib.Path, output: str) -> None:
        """A folder that another user puts in the place of ours, or of the one above, during a run, gets nothing."""
        folder = output.partition("/")[0]
        swaps = shlex.join([*BECOMES_ANOTHER, "sh", "-c", f"mv {folder} moved && mkdir -m 777 {folder}"])
        done = nncf_tools("fit", "--free-only", "-o", output, "--", "sh", "-c", f"{swaps}; sleep 0.3", cwd=shared)

        assert done.returncode == 2
        assert f"the folder {folder!r} belongs to another user (" in done.stderr
        assert list((shared / folder).iterdir()) == []

    @pytest.mark.parametrize("repeat", ["1", "2"])
    def test_recording(self, nncf_tools: Run, shared: pathlib.Path, repeat: str) -> None:
        """A recording makes no folder again below another user's, and no second one begins there."""
        swaps = shlex.join([*BECOMES_ANOTHER, "sh", "-c", "mv above moved && mkdir -m 777 above"])
        words = ["monitor", "--repeat", repeat, "-o", "above/out/run.json", "--", "sh", "-c"]
        done = nncf_tools(*words, f"{swaps}; sleep 0.2", cwd=shared, env={"TMPDIR": str(shared / "moved")})

        assert done.returncode == (2 if repeat == "2" else 0)
        assert done.stderr.count("above/out is another folder now") == int(repeat)
        assert done.stderr.count("every user may rename") == 1
        assert list((shared / "above").iterdir()) == []


@as_another
class TestOutputOfAReader:
    """Who replaces the folder of a picture, while what is drawn is read, does not choose where it goes."""

    COMMANDS = (
        ("report", "fifo", "--plot", "out/a.png"),
        pytest.param(("report", "fifo", "--format", "memory-log", "--output", "out"), marks=pytest.mark.long),
        ("compare", "fifo", DATA / "runs/new-1.json", "--output", "out/a.txt"),
        ("viz-compression", "--input-file", "fifo", "--lenient", "--output-dir", "out"),
    )

    @pytest.mark.parametrize("words", COMMANDS, ids=lambda words: f"{words[0]} {words[-1]}".replace("/", "-"))
    def test_swapped(self, tmp_path: pathlib.Path, words: tuple[str, ...]) -> None:
        """The folder that has taken the place gets nothing, and one line says so."""
        os.mkfifo(tmp_path / "fifo")
        (tmp_path / "out").mkdir()
        with subprocess.Popen(
            command_line(*map(str, words)), cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as command:
            with (tmp_path / "fifo").open("wb") as fifo:  # it is open when the command reads it
                (tmp_path / "out").rename(tmp_path / "moved")
                (tmp_path / "out").mkdir()
                os.chown(tmp_path / "out", OTHER, OTHER)
                read = "made_up_compression.csv" if words[0] == "viz-compression" else "runs/base-1.json"
                fifo.write((DATA / read).read_bytes())
            _, errors = command.communicate(timeout=HANGING_S)

        assert command.returncode in {1, 2}
        assert errors.endswith("the folder 'out' belongs to another user (nobody)\n")
        assert [*(tmp_path / "out").iterdir(), *(tmp_path / "moved").iterdir()] == []


class TestForecast:
    @as_another
    def test_earlier_one_behind_a_link(self, nncf_tools: Run, tmp_path: pathlib.Path, shared: pathlib.Path) -> None:
        """With --force, nothing is removed through another user's link."""
        models.write(tmp_path / "model", 8)
        (tmp_path / "ours").mkdir()
        files = {tmp_path / "ours" / name for name in ("forecast.json", "forecast.md", "slice-1.json", "slice-1.log")}
        for file in files:
            file.touch()
        subprocess.run([*BECOMES_ANOTHER, "ln", "-s", tmp_path / "ours", "theirs"], cwd=shared, check=True)
        done = nncf_tools("forecast", "--no-output", "--force", "-o", shared / "theirs", "--", "true", "model")

        assert done.returncode == UsageError.exit_code
        assert "belongs to another user" in done.stderr
        assert set((tmp_path / "ours").iterdir()) == files


@pytest.fixture
def model(tmp_path: pathlib.Path) -> pathlib.Path:
    """Make what a sweep needs, in a folder of ours; return that folder."""
    ours = tmp_path / "ours"
    (ours / "model").mkdir(parents=True)
    (ours / "model/config.json").write_text('{"hidden_size": 576, "intermediate_size": 1536}')
    (ours / "text.txt").write_text("Each process has memory of its own.")
    return ours


STAND_IN = f"{sys.executable} -S -E {BURNERS / 'sweep_python.py'}"


def swept(
    nncf_tools: Run,
    model: pathlib.Path,
    shared: pathlib.Path,
    script: str,
    *more: str | pathlib.Path,
    output: str = "results.csv",
) -> subprocess.CompletedProcess[str]:
    """Sweep one configuration in the shared folder with a Python that is this shell script."""
    (model / "calibration.txt").write_text("Nobody knows what weather comes tomorrow.")
    python = model / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    texts = ["--text", model / "text.txt", "--calibration", model / "calibration.txt"]
    words = ["--model", model / "model", *texts, "--only", "int8", "--python", python]
    return nncf_tools("sweep", *words, *more, "-o", output, cwd=shared)


class TestSweep:
    @as_another
    def test_job_is_changed(self, nncf_tools: Run, model: pathlib.Path, shared: pathlib.Path) -> None:
        """What a step does is not read from the folder: who replaces all of it chooses nothing that runs."""
        python = model / "python"
        python.write_text(PYTHON.format(shared=shared, python=sys.executable))
        python.chmod(0o755)
        with subprocess.Popen(
            [*BECOMES_ANOTHER, "sh", "-c", SWAPS], cwd=shared, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as attacker:
            assert attacker.stdout is not None
            attacker.stdout.readline()
            words = ["--model", model / "model", "--text", model / "text.txt", "--only", "int8", "--python", python]
            done = nncf_tools("sweep", *words, "-o", "results.csv", cwd=shared, env={"TMPDIR": str(model)})
            attacker.kill()

        assert (shared / "swapped").exists()
        assert not (shared / "ran").exists()
        refusals = {1: "the model could not be exported: export: exit status 1", 2: "cannot write"}
        assert refusals[done.returncode] in done.stderr  # 2: the swap came before the journal, after the log
        assert "Traceback" not in done.stderr

    @as_another
    def test_folder_above_is_swapped(self, nncf_tools: Run, model: pathlib.Path, shared: pathlib.Path) -> None:
        """No folder of a sweep is made again below one that another user puts in the place of the folder above it."""
        (model / "model/openvino_model.xml").touch()
        (model / "model/openvino_model.bin").write_bytes(bytes(1000))
        (shared / "above").mkdir()
        (shared / "above").chmod(0o777)
        swaps = shlex.join([*BECOMES_ANOTHER, "sh", "-c", "mv above moved && mkdir -m 777 above"])
        script = f'[ "$1" = -c ] || (cd {shared}; {swaps})\nexec {STAND_IN} "$@"'
        done = swept(nncf_tools, model, shared, script, output="above/results.csv")

        assert done.returncode == 2, done.stderr
        assert "the folder 'above' belongs to another user (" in done.stderr
        assert list((shared / "above").iterdir()) == []

    @pytest.mark.long
    @as_another
    def test_model_behind_a_link(self, nncf_tools: Run, model: pathlib.Path, shared: pathlib.Path) -> None:
        """The compressed model is removed at the end of its steps, but not one that a link of another user leads to."""
        (model / "model/openvino_model.xml").touch()
        (model / "model/openvino_model.bin").write_bytes(bytes(1000))
        linked = f'mv results.sweep moved && mkdir -m 777 results.sweep && ln -s {model} "results.sweep/$1"'
        swaps = f"{shlex.join([*BECOMES_ANOTHER, 'sh', '-c', linked, 'sh'])} $(basename results.sweep/fp32-*)"
        swept(nncf_tools, model, shared, f'[ "$1" = -c ] || (cd {shared}; {swaps})\nexec {STAND_IN} "$@"')

        assert (shared / "moved").exists()
        assert (model / "model/config.json").exists()

    @as_another
    def test_tasks_are_checked_again(self, nncf_tools: Run, model: pathlib.Path, shared: pathlib.Path) -> None:
        """Tasks of the user's that others may change by then are not run, though they passed the first check."""
        (model / "model/openvino_model.xml").touch()
        (model / "model/openvino_model.bin").write_bytes(bytes(1000))
        (model / "tasks").mkdir()
        script = f'[ "$1" = -c ] || chmod o+w {model}/tasks\nexec {STAND_IN} "$@"'
        words = ["--tasks", "mine", "--include-path", model / "tasks"]
        done = swept(nncf_tools, model, shared, script, *words)

        assert done.returncode == 2, done.stderr
        assert f"option --include-path: {str(model / 'tasks')!r} may be changed by every user" in done.stderr
        assert list(shared.rglob("tasks.log")) == []

    @pytest.mark.long
    def test_libraries_run_in_an_empty_folder(self, nncf_tools: Run, model: pathlib.Path, shared: pathlib.Path) -> None:
        """A folder that has the name of a task or a data set, where the sweep is started, is none of them."""
        (shared / "wikitext").mkdir()
        (shared / "swapped").touch()
        library = model / "libraries/optimum/commands/optimum_cli.py"
        library.parent.mkdir(parents=True)
        library.write_text("import os; print(os.listdir())")
        python = model / "python"
        python.write_text(PYTHON.format(shared=shared, python=sys.executable))
        python.chmod(0o755)
        words = ["--model", model / "model", "--text", model / "text.txt", "--only", "int8", "--python", python]
        done = nncf_tools(
            "sweep", *words, "-o", "results.csv", cwd=shared, env={"PYTHONPATH": str(model / "libraries")}
        )

        assert (shared / "results.sweep/export/export.log").read_text() == "[]\n", done.stderr

    @as_another
    def test_modules_where_it_is_started(self, model: pathlib.Path, shared: pathlib.Path) -> None:
        """No Python that is started imports what another user has put into the working folder."""
        plants = "for name in json csv email nncftools; do echo \"open('ran', 'w')\" > $name.py; done"
        subprocess.run([*BECOMES_ANOTHER, "sh", "-c", plants], cwd=shared, check=True)
        words = ["--model", model / "model", "--text", model / "text.txt", "--only", "int8", "-o", "results.csv"]
        done = subprocess.run(
            [*running("nncftools"), "sweep", *words],
            cwd=shared,
            capture_output=True,
            text=True,
            timeout=HANGING_S,
            check=False,
        )

        assert "has no nncf and no openvino" in done.stderr
        assert not (shared / "ran").exists()
