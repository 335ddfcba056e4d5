"""What the package opens: it writes by ``files.replacing`` and ``files.open_ours``; other calls are listed here."""

from __future__ import annotations

import ast
import itertools
import pathlib
from collections.abc import Iterator

import nncftools
from tests.test_layers import name_of

ROOT = pathlib.Path(nncftools.__file__).parent
OPEN = {"open", "write_text", "write_bytes", "touch", "mkfifo", "memfd_create", "symlink_to"}
OPEN |= {"mkstemp", "mkdtemp", "TemporaryFile", "NamedTemporaryFile", "SpooledTemporaryFile", "TemporaryDirectory"}
OPEN |= {"copy", "copy2", "copyfile", "copytree", "extractall", "savefig", "save_model"}
BARE = {
    "it is the one way itself": {
        "files os.open",
        "journal.reading os.open",  # journals: O_EXCL, O_NOFOLLOW
        "intake os.open",  # all that is read from outside: O_NONBLOCK, then its kind
    },
    "it makes a file that nobody else has: O_EXCL": {
        "api.recorder os.open",  # in the folder of the recording that this process has just made
        "cli.destination os.open",  # O_NOFOLLOW, in a folder that is held open
    },
    "it appends to the log of the recording that the program was started in, by the log's own rules": {
        "marks.line os.open",
    },
    "it is a file in memory or without a name, or in a new folder with a random name that is ours alone": {
        "api.recorder os.memfd_create",
        "api.recorder tempfile.mkdtemp",
        "api.recorder tempfile.mkstemp",
        "cli.destination tempfile.mkdtemp",
        "cli.forecast.runs tempfile.mkdtemp",
        "cli.forecast.slices tempfile.TemporaryDirectory",
        "cli.recording tempfile.mkdtemp",
        "cli.record tempfile.TemporaryDirectory",
        "cli.report tempfile.mkdtemp",
        "cli.series tempfile.TemporaryFile",
        "cli.sweep.steps (folder / ROW).write_bytes",
        "cli.sweep.steps (folder / _TASK_FILE).write_bytes",
        "cli.sweep.steps opened.extractall",
        "cli.sweep.steps tempfile.TemporaryDirectory",
        "cli.sweep.steps tempfile.TemporaryFile",
        "cli.report tempfile.TemporaryDirectory",
    },
    "it copies a user's model into a new folder with a random name that is ours alone": {
        "cli.forecast.slices shutil.copy",
    },
    "it opens a descriptor, a buffer or a stream, no path": {
        "cli.sweep.steps tarfile.open",
        "cli.sweep.steps open",
        "cli.sweep.worker open",
        "compression.picture drawing.figure.savefig",
        "drawing drawing.savefig",
        "render.text panels.page(session, view).savefig",
    },
    "a library writes it, in the folder of a configuration that this sweep has made anew": {
        "cli.sweep.worker.model openvino.save_model",
        "cli.sweep.worker.model shutil.copy",
    },
    "it is a link that replaces the one before": {"cli.destination new_link.symlink_to"},
    "it only reads what the user names, or what this program has recorded": {
        "api.recorder self.marks_log.open",
        "cli.planning path.open",
        "cli.sweep.results file.open",
        "marks.call_log open",
    },
    "it reads a file that a program names as its code: each folder is held open, links and kinds are checked": {
        "session.snapshots open",
        "session.snapshots os.open",
    },
    "it only drops pages: O_NONBLOCK": {"limits.needs os.open"},
    "it is a file of the kernel, a device, or of the package": {
        "cli.screen os.open",
        "cli.screen Path(os.devnull).open",
        "cli.series os.open",
        "limits.verdict os.open",
        "live.viewer os.open",
        "marks.autoload open",
        "sampler.client open",
        "sampler.link os.open",
        "sampler.probes.machine os.open",
        "sampler.process_records open",
        "sampler.service os.open",
        "sampler.target open",
        "sampler.tree open",
        "sampler.tree os.open",
        "sampler.tree self.open",
        "snapshots.helper open",
        "snapshots.finding open",  # /proc/PID/mem
        "snapshots.finding os.open",  # what a process has mapped, or a newer Python runs: regular files, by O_PATH
        "snapshots.python_memory open",  # /proc/PID/stat
        "snapshots.python_memory os.open",  # /proc/PID/mem
        "snapshots.tree_watch open",
        "testing.meter pathlib.Path(_CLEAR_REFS).write_bytes",
    },
    "it opens no file": {
        "cli.screen webbrowser.open",
        "live.run self._nesting.open",
        "reading_marks.resolving self._nesting.open",
        "render.terminal_plot low.copy",
    },
}
"""Why calls need not go through the one way, by module and function."""


def calls(path: pathlib.Path) -> Iterator[str]:
    """Yield the calls of a module that may open a file."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Call):
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            if name in OPEN:
                yield f"{name_of(path)} {ast.unparse(function)}"


def test_every_open_has_a_reason() -> None:
    """Each call that may open a file is in the table, and each line of the table is needed."""
    found = set(itertools.chain.from_iterable(map(calls, ROOT.rglob("*.py"))))

    assert found - set().union(*BARE.values()) == set()
    assert set().union(*BARE.values()) - found == set()
