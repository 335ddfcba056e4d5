from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import NamedTuple
from xml.etree import ElementTree as ET

import pytest

from nncftools.analysis.session import Session
from nncftools.marks.line import VARIABLE
from tests.conftest import HANGING_S, Run
from tests.made_up import MIB
from tests.trust.another_user import OTHER, as_another

pytest_plugins = ["pytester"]

if sys.platform != "linux":
    pytest.skip("peaks that the kernel tells", allow_module_level=True)

TOUCH = """
import copy, os, signal, subprocess, sys, time
import pytest

HOLD = '''
import sys
held = bytearray(int(sys.argv[1]) << 20)
held[::4096] = b"x" * len(held[::4096])
print(open("/proc/self/status").read().partition("VmRSS:")[2].split()[0], flush=True)
sys.stdin.read()
'''

def touch(mib):
    held = bytearray(mib << 20)
    held[::4096] = b"x" * len(held[::4096])
    return held

def said(name, kib):
    with open("said", "a") as log:
        print(name, int(kib) / 1024, file=log)

def child(mib, name):
    pipe = subprocess.PIPE
    held = subprocess.Popen([sys.executable, "-S", "-E", "-c", HOLD, str(mib)], stdin=pipe, stdout=pipe)
    said(name, held.stdout.readline())
    return held

def end(held):
    held.stdin.close()
    held.stdout.close()
    held.wait()

def until(look):
    deadline = time.monotonic() + 100
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.002)

@pytest.fixture
def tap(request):
    return request.config.pluginmanager.get_plugin("nncf-tools-measuring").meter.reader

@pytest.fixture
def sampled(tap):
    from nncftools.journal import reading
    from nncftools.session.recording import Recording
    def wait():
        now_ns, recording = time.monotonic_ns(), Recording(reading.reader(tap.journal), "its own")
        def is_newer():
            samples = [sample for chunk in recording.read() for sample in chunk.samples]
            return any(recording.start["monotonic_ns"] + sample[0] * 1e9 > now_ns for sample in samples)
        until(is_newer)
    return wait
"""
NEVER = "--memory-interval=1000"
"""No sample but those that are asked for."""
ROW = re.compile(r"^ *([\d,.–]+) +([\d,.–]+)  (kernel|sampled|unsampled|unknown) +(\S+)$")


class Figures(NamedTuple):
    """The figures of a test in the table."""

    peak_mib: float
    above_start_mib: float
    known: str


class Result(NamedTuple):
    """The result of a run."""

    code: int
    lines: list[str]
    outcomes: dict[str, int]
    said: dict[str, float]
    """Memory that the processes themselves report, in MiB."""

    @property
    def section(self) -> list[str]:
        """All lines from the table's heading onwards."""
        return self.lines[next(place for place, line in enumerate(self.lines) if "= memory: " in line) :]

    @property
    def table(self) -> dict[str, Figures]:
        """The figures by test name, in the order of the table."""
        rows = (found.groups() for line in self.lines if (found := ROW.match(line)) is not None)
        return {name.partition("::")[2]: Figures(float(peak), float(above), how) for peak, above, how, name in rows}


class Suite:
    """Runs pytest with a test module in a separate process."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self._pytester = pytester
        self.path = pytester.path

    def __call__(self, source: str, *words: str) -> Result:
        """Run ``source``, with ``--memory`` unless other options are given."""
        self._pytester.makepyfile(test_it=TOUCH + source)
        ran = self._pytester.runpytest_subprocess(*(words or ("--memory",)), timeout=HANGING_S)
        outcomes = ran.parseoutcomes() if ran.ret in {0, 1} else {}
        return Result(int(ran.ret), ran.outlines + ran.errlines, outcomes, self.said())

    def said(self) -> dict[str, float]:
        """Return the memory that processes reported."""
        file = self.path / "said"
        if not file.exists():
            return {}
        return {name: float(mib) for name, mib in (line.split() for line in file.read_text().splitlines())}


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Suite:
    """Return a function that runs a suite without an outer recording."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    return Suite(pytester)


@pytest.mark.process
def test_peaks(suite: Suite) -> None:
    """Each test has its own peak, largest first; a spike between samples counts, also if its memory is freed."""
    result = suite(
        """
def test_before(): pass
def test_64(): touch(64)
def test_after(): pass
def test_spike():
    held = touch(128)
    del held
@pytest.mark.parametrize("mib", [32])
def test_held(mib, request): request.config.held = touch(mib)
def test_beside(): pass
""",
        "--memory",
        NEVER,
    )
    table = result.table

    assert list(table)[:2] == ["test_spike", "test_64"]
    assert {name: round(figures.above_start_mib) for name, figures in table.items()} == {
        "test_spike": pytest.approx(128, abs=3),
        "test_64": pytest.approx(64, abs=2),
        "test_held[32]": pytest.approx(32, abs=2),
        "test_before": pytest.approx(0, abs=2),
        "test_after": pytest.approx(0, abs=2),
        "test_beside": pytest.approx(0, abs=2),
    }
    assert table["test_beside"].peak_mib == pytest.approx(table["test_before"].peak_mib + 32, abs=3)
    assert {figures.known for figures in table.values()} == {"kernel"}


@pytest.mark.long
@pytest.mark.process
def test_children(suite: Suite) -> None:
    """A fixture's child counts in each test; a child too short for a sample counts by the kernel's mark."""
    result = suite(
        """
@pytest.fixture(scope="module")
def server():
    held = child(50, "server")
    yield
    end(held)
def test_short(): end(child(250, "short"))
def test_server(server): pass
def test_server_again(server): touch(20)
""",
        "--memory",
        NEVER,
    )
    table = result.table
    own = table["test_server"].peak_mib - table["test_server"].above_start_mib
    server = result.said["server"]

    assert table["test_short"].peak_mib == pytest.approx(result.said["short"], abs=2)
    assert table["test_short"].known == "kernel"
    assert table["test_server"].above_start_mib == pytest.approx(server, abs=3)
    assert table["test_server"].known == "sampled"
    assert table["test_server_again"].peak_mib >= own + server - 1
    assert table["test_server_again"].above_start_mib < 25


@pytest.mark.long
@pytest.mark.process
def test_late_answer(suite: Suite) -> None:
    """A slow sampler is waited for, so that the memory of a child is in the figure."""
    result = suite(
        """
import threading
@pytest.fixture(scope="module")
def server():
    held = child(250, "server")
    yield
    end(held)
def test_server(server, tap):
    before = tap.marks_log.stat().st_size
    def go_on():
        until(lambda: tap.marks_log.stat().st_size > before + 100)  # it was requested repeatedly
        os.kill(tap.sampler_pid, signal.SIGCONT)
    os.kill(tap.sampler_pid, signal.SIGSTOP)
    threading.Thread(target=go_on).start()
def test_last(server): pass
""",
        "--memory",
        NEVER,
    )

    assert result.table["test_server"].above_start_mib == pytest.approx(result.said["server"], abs=3)
    assert result.table["test_server"].known == "sampled"


@pytest.mark.long
@pytest.mark.process
def test_children_between_two_ends(suite: Suite) -> None:
    """The sum over processes, forked copies included, is sampled while the test runs."""
    result = suite("""
def test_lives(sampled):
    held = touch(30)
    beside = child(250, "child")
    sampled()
    end(beside)
def test_fork(sampled):
    holds, release = os.pipe(), os.pipe()
    if os.fork() == 0:
        held = touch(40)
        os.write(holds[1], b"x")
        os.read(release[0], 1)
        os._exit(0)
    os.read(holds[0], 1)
    sampled()
    os.write(release[1], b"x")
    os.wait()
""")
    table = result.table

    assert max(map(len, result.section)) == 80
    assert table["test_lives"].above_start_mib == pytest.approx(30 + result.said["child"], abs=3)
    assert table["test_fork"].above_start_mib > 40
    assert {figures.known for figures in table.values()} == {"sampled"}


@pytest.mark.long
@pytest.mark.process
def test_limits(suite: Suite) -> None:
    """A test above its closest limit fails with one line; a failed test keeps its failure, an xfail is expected."""
    result = suite("""
limit = pytest.mark.limit_peak
@limit("1 GiB")
def test_below(): touch(64)
@limit("20 MiB")
def test_above(): touch(64)
@limit("20 MiB")
def test_own(): touch(64); raise ValueError("its own")
@limit("20 MiB")
@pytest.mark.xfail(strict=True)
def test_xfail(): touch(64)
@limit("20 MiB")
def test_skip(): touch(64); pytest.skip("why not")
@pytest.fixture
def late():
    yield
    touch(64)
@limit("20 MiB")
def test_teardown(late): pass
@limit("1 MiB", from_zero=False)
class TestClosest:
    @limit("1 GiB")
    def test_closest(self): pass
    def test_of_class(self): pass
def test_added(request): request.node.add_marker(limit("64"))
""")
    text = "\n".join(result.lines)
    source = r"\(peak RSS of one process, from the kernel\)"
    limit = rf"the limit is 20\.0 MiB above the memory at the start of the test {source}"
    above = rf"memory rose by 6\d\.\d MiB to [\d.]+ MiB; {limit}"

    assert result.outcomes == {"passed": 3, "failed": 4, "errors": 1, "skipped": 1, "xfailed": 1}
    assert re.search(rf"_ test_above _+\n{above}", text)
    assert re.search(rf"ValueError: its own.*\n(.*\n)*-+ memory limit -+\n{above}", text)
    assert re.search(rf"_ ERROR at teardown of test_teardown _+\n{above}", text)
    assert re.search(r"_ TestClosest.test_of_class _+\nmemory rose by .* MiB; the limit is 1\.0 MiB in all", text)
    assert re.search(r"_ test_added _+\ntest_it.py::test_added: limit_peak: a size above 0 with its unit", text)


@pytest.mark.parametrize(
    "arguments, said",
    [
        (
            '"200 MB/s"',
            "limit_peak: a size above 0 with its unit (B, KiB, MiB, GiB, KB, MB, GB) expected, such as 8GiB",
        ),
        ("-1", 'expected one size, as in limit_peak("200 MiB") or limit_peak("2 GiB", from_zero=False), found limit'),
        pytest.param('"1 GiB", "2 GiB"', "found limit_peak('1 GiB', '2 GiB')", marks=pytest.mark.long),
        pytest.param('"1 GiB", zero=True', "found limit_peak('1 GiB', zero)", marks=pytest.mark.long),
        pytest.param("", "found limit_peak()", marks=pytest.mark.long),
    ],
)
def test_wrong_limit(pytester: pytest.Pytester, arguments: str, said: str) -> None:
    """An invalid limit ends the run before any test, with the test's name and what was expected."""
    pytester.makepyfile(f"import pytest\n@pytest.mark.limit_peak({arguments})\ndef test_it(): raise SystemExit('ran')")
    pytester.makepyfile(test_other="def test_other(): raise SystemExit('ran')")
    result = pytester.runpytest_inprocess("--memory", "-p", "no:cacheprovider")
    (line,) = [line for line in result.outlines if line.startswith("test_wrong_limit.py::test_it: ")]

    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert said in line
    assert not [line for line in result.outlines if "ran" in line and "==" not in line]


@pytest.mark.long
@pytest.mark.process
def test_workers(suite: Suite) -> None:
    """With pytest-xdist each worker measures and writes its own tests; the table and JUnit XML have all."""
    words = ("--memory", "-n", "2", "--junitxml=it.xml", "--memory-output=run.json")
    result = suite("def test_a(): touch(64)\ndef test_b(): touch(32)", *words)
    properties = {
        case.attrib["name"]: {found.attrib["name"]: found.attrib["value"] for found in case.iter("property")}
        for case in ET.parse(suite.path / "it.xml").iter("testcase")  # noqa: S314 — our own
    }
    operations = {
        phase.name for name in ("gw0", "gw1") for phase in Session.load(suite.path / f"run.{name}.json").operations
    }

    assert list(result.table) == ["test_a", "test_b"]
    assert result.table["test_a"].above_start_mib == pytest.approx(64, abs=2)
    assert int(properties["test_b"]["memory_above_start_bytes"]) == pytest.approx(32 * MIB, abs=2 * MIB)
    assert properties["test_b"]["memory_known"] == "kernel"
    assert operations == {"test_it.py::test_a", "test_it.py::test_b"}
    assert not (suite.path / "run.json").exists()


@pytest.mark.long
def test_recording(suite: Suite, nncf_tools: Run) -> None:
    """The recording has an operation per test, and includes the kernel's mark of every test."""
    source = "def test_a(): touch(64)\ndef test_b():\n    touch(32)\n    raise ValueError"
    result = suite(source, "--memory", "--memory-output=run.json")
    session = Session.load(suite.path / "run.json")
    report = nncf_tools("report", suite.path / "run.json").stdout
    (mark,) = [process.high_water_mark for process in session.processes[:1]]

    assert [(phase.name, phase.error) for phase in session.operations] == [
        ("test_it.py::test_a", None),
        ("test_it.py::test_b", "ValueError"),
    ]
    assert mark is not None
    assert mark / MIB == pytest.approx(result.table["test_a"].peak_mib, abs=3)
    assert session.peaks["rss"].low == max(mark, session.peaks["rss"].sampled or 0)
    assert "test_it.py::test_a" in report


@pytest.mark.long
def test_recording_around(suite: Suite, nncf_tools: Run) -> None:
    """An outer recorder of pytest keeps its high-water mark, and gets the tests as operations."""
    figure = "open('/proc/self/status').read().partition('VmHWM:')[2].split()[0]"
    source = f"def test_a(): touch(64)\ndef test_b():\n    touch(32)\n    said('mark', {figure})"
    suite(source, "--collect-only")
    words = ("-m", "pytest", "-p", "no:cacheprovider", "--memory")
    nncf_tools("monitor", "-q", "-o", "around.json", "--", sys.executable, *words, cwd=suite.path)
    session = Session.load(suite.path / "around.json")
    largest = max(max(process.high_water_mark or 0, process.high_water_limit or 0) for process in session.processes)

    assert [phase.name for phase in session.operations] == ["test_it.py::test_a", "test_it.py::test_b"]
    assert suite.said()["mark"] > 64
    assert largest / MIB >= suite.said()["mark"] - 1


@pytest.mark.long
@pytest.mark.process
def test_lost_sampler(suite: Suite) -> None:
    """If the sampler is killed, tests continue with the kernel's figures and one warning, never an error."""
    result = suite(
        """
def test_kill(tap):
    os.kill(tap.sampler_pid, signal.SIGKILL)
    until(lambda: not tap.is_alive)
def test_next(): touch(64)
@pytest.mark.limit_peak("1 MiB", from_zero=False)
def test_limit(): pass
""",
        "--memory",
        "-Werror",
        "--memory-output=run.json",
    )

    assert result.outcomes == {"passed": 2, "failed": 1, "warnings": 1}
    assert result.table["test_next"].above_start_mib == pytest.approx(64, abs=2)
    assert {figures.known for figures in result.table.values()} == {"unsampled"}
    assert [line for line in result.lines if "the sampler has ended: from now on the memory of child" in line]
    assert not Session.load(suite.path / "run.json").finished


@pytest.mark.long
@pytest.mark.process
def test_no_sampler(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    """If no recording can be started, there are the kernel's figures, and a warning says why there are no others."""
    suite.path.joinpath("conftest.py").write_text(
        "from nncftools.sampler import client\n"
        "def fail(*_): raise OSError('no more processes')\n"
        "client.DetachedSampler = fail\n"
    )
    monkeypatch.setenv("COLUMNS", "200")
    result = suite("def test_64(): touch(64)")

    assert result.outcomes == {"passed": 1, "warnings": 1}
    assert result.table["test_64"].known == "unsampled"
    assert [line for line in result.lines if "could not be started: no more processes" in line]


@pytest.mark.long
@pytest.mark.process
def test_interrupted(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted run shows the tests measured so far and leaves no temporary files."""
    temporary = suite.path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    result = suite("def test_a(): touch(64)\ndef test_b(): raise KeyboardInterrupt\ndef test_c(): pass")

    assert result.code == pytest.ExitCode.INTERRUPTED
    assert list(result.table) == ["test_a"]
    assert not list(temporary.glob("nncf-tools-*"))


@pytest.mark.long
@pytest.mark.process
def test_copies_of_the_process(suite: Suite) -> None:
    """A forked copy that runs on into pytest's code does not end the recording."""
    result = suite("""
def test_copy():
    if os.fork() == 0:
        sys.stdout = sys.stderr = open(os.devnull, "w")
        raise SystemExit(0)
    os.wait()
def test_child(sampled):
    held = child(250, "child")
    sampled()
    end(held)
""")

    assert result.outcomes["passed"] >= 2
    assert result.table["test_child"].known == "sampled"


@pytest.mark.long
@pytest.mark.process
def test_off(suite: Suite) -> None:
    """Without --memory, the marker is known and does nothing, and only the module with the options is loaded."""
    result = suite(
        """
@pytest.mark.limit_peak("1 B", "anything")
def test_it():
    loaded = sorted(name for name in sys.modules if name.startswith("nncftools"))
    assert loaded == ["nncftools", "nncftools.testing", "nncftools.testing.plugin"]
    assert "NNCF_TOOLS_MARKS" not in os.environ
""",
        "--strict-markers",
    )

    assert result.outcomes == {"passed": 1}
    assert not result.table


@pytest.mark.long
@pytest.mark.process
def test_the_plugin_loads_nothing_else() -> None:
    """The module that every start of pytest loads needs only pytest and the standard library."""
    program = (
        "import sys, pytest; before = set(sys.modules); import nncftools.testing.plugin\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    words = [sys.executable, "-c", program]
    loaded = subprocess.run(words, check=True, capture_output=True, text=True, timeout=HANGING_S).stdout.split()

    assert {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names == {"nncftools"}


@pytest.mark.parametrize(
    "words, said",
    [
        (("--memory-output=run.json",), "option --memory-output: only with --memory"),
        (("--memory", "--memory-output=no/run.json"), "option --memory-output: there is no folder"),
        (("--memory", "--memory-output=."), "option --memory-output: . is a folder; a file name expected"),
        (("--memory", "--memory-top=-1"), "option --memory-top: a number of at least 0 expected"),
        (("--memory", "--memory-interval=0"), "option --memory-interval: interval: seconds from 0.001"),
    ],
)
def test_wrong_option(pytester: pytest.Pytester, words: tuple[str, ...], said: str) -> None:
    """An invalid option gives one line on standard error."""
    result = pytester.runpytest_inprocess(*words)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert [line for line in result.errlines if said in line]


@pytest.mark.long
@pytest.mark.process
@pytest.mark.parametrize("top, heading", [("1", "memory: 1 largest peak of 3 tests"), ("0", "memory: 3 tests")])
def test_top(suite: Suite, top: str, heading: str) -> None:
    """The requested number of tests is shown, all with 0; the heading gives the total."""
    source = "def test_a(): touch(30)\ndef test_b(): touch(10)\ndef test_c(): pass"
    result = suite(source, "--memory", f"--memory-top={top}")

    assert f" {heading} " in result.section[0]
    assert next(iter(result.table)) == "test_a"
    assert len(result.table) == (int(top) or 3)
    assert max(map(len, result.section)) == 80


@pytest.mark.long
@pytest.mark.process
def test_ranks_of_a_job(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rank of a job writes its own recording."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    suite("def test_it(): pass", "--memory", "--memory-output=run.json")

    assert [path.name for path in suite.path.glob("*.json")] == ["run-rank1.json"]


@as_another
@pytest.mark.process
def test_output_to_a_device(suite: Suite) -> None:
    """A device gets the recording and stays a device."""
    device = suite.path / "null.json"
    os.mknod(device, 0o020666, os.makedev(1, 3))
    result = suite("def test_it(): pass", "--memory", "--memory-output=null.json")

    assert result.code == 0
    assert device.is_char_device()
    assert [path.name for path in suite.path.glob("*.json")] == ["null.json"]


@pytest.mark.process
def test_output_of_workers_to_a_descriptor(suite: Suite) -> None:
    """The workers of pytest-xdist need files of their own; a descriptor is refused before any test runs."""
    result = suite("def test_it(): open('ran', 'w')", "--memory", "--memory-output=/dev/stdout", "-n", "1")

    assert (
        "option --memory-output: /dev/stdout is not a file, but with -n each worker writes a file of its own"
        in "\n".join(result.lines)
    )
    assert not (suite.path / "ran").exists()


@as_another
@pytest.mark.process
def test_output_of_another_user(suite: Suite) -> None:
    """Another user's file is refused before any test runs."""
    (suite.path / "run.json").write_text("mine")
    os.chown(suite.path / "run.json", OTHER, OTHER)
    result = suite("def test_it(): open('ran', 'w')", "--memory", "--memory-output=run.json")

    assert "option --memory-output: cannot write run.json: it belongs to another user" in "\n".join(result.lines)
    assert not (suite.path / "ran").exists()


def test_nothing_runs(pytester: pytest.Pytester) -> None:
    """If no test runs, nothing is started or shown."""
    pytester.makepyfile("def test_it(): pass")
    result = pytester.runpytest_inprocess("--memory", "--collect-only", "-p", "no:cacheprovider")

    assert result.ret == 0
    result.stdout.no_fnmatch_line("*memory: *")
