"""What `fit` and `sweep` do in a folder that another user may write to: only what they were asked for."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from nncftools.backports import running
from nncftools.errors import UsageError
from tests.cli.forecast import models
from tests.cli.sweep.inputs import STAND_IN, write_inputs, write_python
from tests.conftest import Run
from tests.trust.another_user import BECOMES_ANOTHER, as_another
from tests.trust.recorder import result_of

pytestmark = pytest.mark.process

PYTHON = """
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


class TestForecast:
    @as_another
    def test_earlier_one_behind_a_link(self, nncf_tools: Run, tmp_path: Path, shared: Path) -> None:
        """With --force, nothing is removed through another user's link."""
        models.write(tmp_path / "model", 8)
        (tmp_path / "ours").mkdir()
        files = {tmp_path / "ours" / name for name in ("forecast.json", "forecast.md", "slice-1.json", "slice-1.log")}
        for file in files:
            file.touch()
        subprocess.run([*BECOMES_ANOTHER, "ln", "-s", tmp_path / "ours", "theirs"], cwd=shared, check=True)
        done = nncf_tools("forecast --no-output --force -o", shared / "theirs", "--", "true", "model")

        assert done.returncode == UsageError.exit_code
        assert "belongs to another user" in done.stderr
        assert set((tmp_path / "ours").iterdir()) == files


def words_of(ours: Path) -> list[str | Path]:
    """Return the words of a sweep of one configuration, with the inputs in a folder of ours."""
    texts = ["--text", ours / "text.txt", "--calibration", ours / "calibration.txt"]
    return ["sweep", "--model", ours / "model", *texts, "--only", "int8", "-o", "results.csv"]


class TestSweep:
    @as_another
    def test_job_is_changed(self, nncf_tools: Run, tmp_path: Path, shared: Path) -> None:
        """What a step does is not read from the folder: who replaces all of it chooses nothing that runs."""
        ours = write_inputs(tmp_path / "ours")
        write_python(ours, PYTHON.format(shared=shared, python=sys.executable))
        with subprocess.Popen(
            [*BECOMES_ANOTHER, "sh", "-c", SWAPS], cwd=shared, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as attacker:
            assert attacker.stdout is not None
            attacker.stdout.readline()
            done = nncf_tools(*words_of(ours), "--python", ours / "python", cwd=shared, env={"TMPDIR": str(ours)})
            attacker.kill()

        assert (shared / "swapped").exists()
        assert not (shared / "ran").exists()
        refusals = {1: "the model could not be exported: export: exit status 1", 2: "cannot write"}
        assert refusals[done.returncode] in done.stderr  # 2: the swap came before the journal, after the log
        assert "Traceback" not in done.stderr

    @pytest.mark.long
    @as_another
    def test_model_behind_a_link(self, nncf_tools: Run, tmp_path: Path, shared: Path) -> None:
        """The compressed model is removed at the end of its steps, but not one that a link of another user leads to."""
        ours = write_inputs(tmp_path / "ours", is_exported=True)
        linked = f'mv results.sweep moved && mkdir -m 777 results.sweep && ln -s {ours} "results.sweep/$1"'
        swaps = f"{shlex.join([*BECOMES_ANOTHER, 'sh', '-c', linked, 'sh'])} $(basename results.sweep/fp32-*)"
        write_python(ours, f'[ "$1" = -c ] || (cd {shared}; {swaps})\n{STAND_IN}')
        nncf_tools(*words_of(ours), "--python", ours / "python", cwd=shared)

        assert (shared / "moved").exists()
        assert (ours / "model/config.json").exists()

    @as_another
    def test_tasks_are_checked_again(self, nncf_tools: Run, tmp_path: Path, shared: Path) -> None:
        """Tasks of the user's that others may change by then are not run, though they passed the first check."""
        ours = write_inputs(tmp_path / "ours", is_exported=True)
        (ours / "tasks").mkdir()
        write_python(ours, f'[ "$1" = -c ] || chmod o+w {ours}/tasks\n{STAND_IN}')
        words = ["--python", ours / "python", "--tasks", "mine", "--include-path", ours / "tasks"]
        done = nncf_tools(*words_of(ours), *words, cwd=shared)

        assert done.returncode == 2, done.stderr
        assert f"option --include-path: {str(ours / 'tasks')!r} may be changed by every user" in done.stderr
        assert list(shared.rglob("tasks.log")) == []

    @pytest.mark.long
    def test_libraries_run_in_an_empty_folder(self, nncf_tools: Run, tmp_path: Path, shared: Path) -> None:
        """A folder that has the name of a task or a data set, where the sweep is started, is none of them."""
        ours = write_inputs(tmp_path / "ours")
        for name in ("wikitext", "swapped"):
            (shared / name).mkdir()
        library = ours / "libraries/optimum/commands/optimum_cli.py"
        library.parent.mkdir(parents=True)
        library.write_text("import os; print(os.listdir())")
        write_python(ours, PYTHON.format(shared=shared, python=sys.executable))
        environment = {"PYTHONPATH": str(ours / "libraries")}
        done = nncf_tools(*words_of(ours), "--python", ours / "python", cwd=shared, env=environment)

        assert (shared / "results.sweep/export/export.log").read_text() == "[]\n", done.stderr

    @as_another
    def test_modules_where_it_is_started(self, tmp_path: Path, shared: Path) -> None:
        """No Python that is started imports what another user has put into the working folder."""
        ours = write_inputs(tmp_path / "ours")
        plants = "for name in json csv email nncftools; do echo \"open('ran', 'w')\" > $name.py; done"
        subprocess.run([*BECOMES_ANOTHER, "sh", "-c", plants], cwd=shared, check=True)
        done = result_of([*running("nncftools"), *words_of(ours)], shared)

        assert "has no nncf and no openvino" in done.stderr
        assert not (shared / "ran").exists()
