from __future__ import annotations

import contextlib
import copy
import gc
import os
import pathlib
import queue
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Sequence

import pytest

from nncftools import MemoryMonitor, MemoryType, MemoryUnit, Session, memory_monitor_context
from nncftools.api import memory_monitor
from nncftools.api.recorder import Recorder
from nncftools.errors import NncfToolsError
from tests.api.sampled import begin_to_read, wait_for_sample, wait_for_samples
from tests.conftest import HANGING_S
from tests.waiting import until

MIB = 2**20
TOUCH = "held = bytearray(100 << 20); held[::4096] = b'x' * len(held[::4096])"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[2])}


def program(text: str, folder: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Run a program that uses the API."""
    command = [sys.executable, "-c", text]
    return subprocess.run(
        command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=HANGING_S
    )


def samplers_of(pid: int) -> list[int]:
    """Return the samplers that record a process."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if len(words) > 5 and words[-6] == b"sampler":
            with contextlib.suppress(OSError):  # another user's, or gone
                if f'"pid":{pid},' in (folder / "fd" / os.fsdecode(words[-5])).read_text():
                    found.append(int(folder.name))
    return found


def has_ended(pid: int) -> bool:
    """Return whether a process has ended; a zombie has."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.fixture
def recorders(monkeypatch: pytest.MonkeyPatch) -> list[Recorder]:
    """Return the recorders that ``memory_monitor_context`` makes."""
    made: list[Recorder] = []

    def make(types: Sequence[str], interval_s: float, *, children: bool = True) -> Recorder:
        made.append(Recorder(types, interval_s, children=children))
        return made[-1]

    monkeypatch.setattr(memory_monitor, "Recorder", make)
    return made


@pytest.mark.process
class TestData:
    def test_allocation_from_zero(self, tmp_path: pathlib.Path) -> None:
        """100 MiB of touched memory appear as 100 MiB above the baseline, within 1 %."""
        text = f"""
from nncftools import MemoryMonitor
from tests.api.sampled import begin_to_read, wait_for_sample
begin_to_read()
monitor = MemoryMonitor(interval=0.02).start()
{TOUCH}
wait_for_sample(monitor)
monitor.stop()
print(max(monitor.get_data(memory_from_zero=True)[1]))
"""
        assert float(program(text, tmp_path).stdout) == pytest.approx(100, rel=0.01)

    @pytest.mark.long
    def test_no_gap_while_the_interpreter_is_held(self, tmp_path: pathlib.Path) -> None:
        """A native call that holds the GIL delays no sample: gaps are at most 2 intervals and missed samples."""
        text = """
import ctypes, sys
from nncftools import MemoryMonitor
monitor = MemoryMonitor(interval=0.02).start()
print("held", flush=True)
ctypes.PyDLL(None).read(0, ctypes.create_string_buffer(1), 1)
monitor.stop()
times, _ = monitor.get_data()
print(len(times), max(b - a for a, b in zip(times, times[1:])), monitor.session.sampler.missed)
"""
        words = [sys.executable, "-c", text]
        environment = {**ENVIRONMENT, "TMPDIR": str(tmp_path)}
        pipe = subprocess.PIPE
        with subprocess.Popen(words, env=environment, stdin=pipe, stdout=pipe, text=True) as held:
            assert held.stdin is not None
            assert held.stdout is not None
            assert held.stdout.readline() == "held\n"
            (journal,) = tmp_path.glob("nncf-tools-*/*.jsonl")
            before = len(Session.load(journal).samples)
            until(lambda: len(Session.load(journal).samples) >= before + 20, "20 samples")
            held.stdin.write("x")
            held.stdin.close()
            number, gap_s, missed = held.stdout.read().split()

        assert int(number) >= before + 20
        assert float(gap_s) <= 0.02 * (2 + int(missed))

    def test_unit_and_baseline(self) -> None:
        """Values are in the unit that was asked for, from the start on; the first is the baseline; times increase.

        The queue that llm_bench reads, and that NNCF's tests replace by an empty one, is there.
        """
        monitor = MemoryMonitor(interval=0.01, memory_unit=MemoryUnit.KiB)
        assert (monitor.get_data(), monitor.measurements) == (([], []), [])
        before = int(time.time())
        with monitor:
            at_once = monitor.get_data()
            wait_for_sample(monitor)
        times, values = monitor.get_data()
        _, from_zero = monitor.get_data(memory_from_zero=True)

        assert before <= monitor.timestamp <= time.time()
        assert 1 <= len(at_once[0]) < len(times) == len(values)
        assert times == sorted(times)
        assert values[0] * 1024 > 5 * MIB
        assert from_zero[0] == 0
        assert monitor.measurements == [(at_s, value * 1024) for at_s, value in zip(times, values, strict=True)]
        assert list(monitor._memory_values_queue.queue) != []
        monitor._memory_values_queue = queue.Queue()
        assert monitor.get_data() == ([], [])

    def test_children(self) -> None:
        """Descendants count unless they are switched off."""
        begin_to_read()
        figure = "open('/proc/self/status').read().partition('VmRSS:')[2].split()[0]"
        text = f"{TOUCH}; print({figure}, flush=True); input()"
        pipe = subprocess.PIPE
        with (
            MemoryMonitor(interval=0.02, include_child_processes=False) as alone,
            MemoryMonitor(interval=0.02) as family,
            subprocess.Popen([sys.executable, "-S", "-c", text], stdin=pipe, stdout=pipe, text=True) as child,
        ):
            assert child.stdout is not None
            held_mib = int(child.stdout.readline()) / 1024
            wait_for_sample(family, alone)
            child.communicate("\n")

        assert held_mib > 100
        assert max(family.get_data(memory_from_zero=True)[1]) > held_mib - 1
        assert max(alone.get_data(memory_from_zero=True)[1]) < 20


PROGRAMS = {
    "last in, first out": (
        """
import atexit
from functools import partial
from tests.api.sampled import wait_for_sample
def tell(name, *monitors):
    print(name, *(len(monitor.get_data()[0]) > 1 and monitor.session.finished for monitor in monitors))
monitors = [MemoryMonitor(interval=0.02) for _ in range(2)]
atexit.register(tell, "first", *monitors)
for name, monitor in zip("ab", monitors):
    monitor.start(at_exit_fn=partial(tell, name, *monitors))
wait_for_sample(*monitors)
atexit.register(tell, "last")
""",
        "last\nb True True\na True True\nfirst True True\n",
        "",
    ),
    "nothing after a stop, nor after a new start without a function": (
        """
monitor = MemoryMonitor(interval=0.02).start(at_exit_fn=lambda: print("called"))
monitor.stop()
monitor.start()
""",
        "",
        "",
    ),
    "once in a forked child that starts it": (
        """
monitor = MemoryMonitor(interval=0.02).start(at_exit_fn=lambda: print("parent", flush=True))
if os.fork():
    os.wait()
else:
    monitor.start(at_exit_fn=lambda: print("child", flush=True))
sys.exit()
""",
        "child\nparent\n",
        "",
    ),
    "not in a forked child": (
        """
monitor = MemoryMonitor(interval=0.02).start(at_exit_fn=lambda: print("at exit", flush=True))
if os.fork():
    os.wait()
sys.exit()
""",
        "at exit\n",
        "",
    ),
    "a function that fails": (
        """
MemoryMonitor(interval=0.02).start(at_exit_fn=lambda: print("called"))
MemoryMonitor(interval=0.02).start(at_exit_fn=lambda: 1 / 0)
""",
        "called\n",
        "ZeroDivisionError",
    ),
    "a working folder that is gone": (
        """
os.mkdir("gone"); os.chdir("gone"); os.rmdir("../gone")
with MemoryMonitor(interval=0.05) as monitor: pass
print(len(monitor.measurements) > 0)
""",
        "True\n",
        "",
    ),
}
"""By case: a program with a monitor, its output, and what is in its errors."""
FIRST, *OTHERS = PROGRAMS


class TestLife:
    @pytest.mark.parametrize("interval", [float("nan"), float("inf"), 1e9])
    def test_impossible_interval(self, interval: float) -> None:
        """An impossible interval is refused at once."""
        with pytest.raises(ValueError, match="interval"):
            MemoryMonitor(interval=interval)

    @pytest.mark.process
    @pytest.mark.parametrize("interval", [0, -1])
    def test_shortest_interval(self, interval: float) -> None:
        """An interval below 1 ms records every millisecond."""
        with MemoryMonitor(interval=interval) as monitor:
            wait_for_sample(monitor)

        assert monitor.session is not None
        assert monitor.session.sampler.interval_s == 0.001

    @pytest.mark.process
    def test_set_after_construction(self) -> None:
        """Interval and type are those at the start; a type set later changes the names of files only."""
        monitor = MemoryMonitor()
        monitor.interval = 0.02
        monitor.memory_type = MemoryType.VMS
        with monitor:
            wait_for_sample(monitor)
        recorded = monitor.get_data()
        monitor.memory_type = MemoryType.PSS

        assert monitor.session is not None
        assert monitor.session.sampler.interval_s == 0.02
        assert monitor.session.samples.metrics[0] == "vms"
        assert monitor.get_data() == recorded

    def test_set_as_text(self) -> None:
        """None stands for the default; attributes take what the constructor takes; an unknown type is refused."""
        monitor = MemoryMonitor(interval=None, memory_unit=None)
        monitor.memory_type = "system"

        assert (monitor.interval, monitor.memory_type, monitor.memory_unit) == (0.1, MemoryType.SYSTEM, MemoryUnit.MiB)
        with pytest.raises(ValueError, match="tea"):
            monitor.memory_type = "tea"

    @pytest.mark.parametrize(
        "memory_type, given, expected",
        [
            ("rss", None, True),
            ("pss", None, True),
            ("rss", False, False),
            ("system", None, None),
            ("cgroup", None, None),
        ],
    )
    def test_include_child_processes(self, memory_type: str, given: bool | None, expected: bool | None) -> None:  # noqa: FBT001 — a figure of the table
        """The attribute has the default that applies: None where descendants make no difference."""
        assert (
            MemoryMonitor(memory_type=MemoryType(memory_type), include_child_processes=given).include_child_processes
            is expected
        )

    @pytest.mark.process
    def test_once(self) -> None:
        """A running monitor can be neither started nor copied; a stopped one can be started, and is freed at last."""
        assert copy.deepcopy(MemoryMonitor(interval=0.05)).interval == 0.05
        with MemoryMonitor(interval=0.05) as monitor:
            with pytest.raises(RuntimeError, match="already"):
                monitor.start()
            with pytest.raises(TypeError, match="cannot be copied"):
                copy.deepcopy(monitor)
        monitor.start(at_exit_fn=lambda: None)
        monitor.stop()
        monitor.stop()
        alive = weakref.ref(monitor)
        del monitor
        gc.collect()

        assert alive() is None

    @pytest.mark.process
    @pytest.mark.parametrize("name", [FIRST, *(pytest.param(name, marks=pytest.mark.long) for name in OTHERS)])
    def test_at_exit(self, tmp_path: pathlib.Path, name: str) -> None:
        """Functions are called last in, first out, also with the program's own, after all recordings have ended."""
        text, printed, error = PROGRAMS[name]
        result = program(f"import os, sys\nfrom nncftools import MemoryMonitor\n{text}", tmp_path)

        assert result.stdout == printed
        assert error in result.stderr

    @pytest.mark.process
    def test_no_sampler_outlives_a_crash(self, tmp_path: pathlib.Path) -> None:
        """The sampler ends with the program, however that ends."""
        text = """
import os
from nncftools import MemoryMonitor
monitor = MemoryMonitor(interval=0.02).start()
print(os.getpid(), flush=True)
input()
os.kill(os.getpid(), 9)
"""
        words = [sys.executable, "-c", text]
        pipe = subprocess.PIPE
        with subprocess.Popen(words, cwd=tmp_path, env=ENVIRONMENT, stdin=pipe, stdout=pipe, text=True) as crashes:
            assert crashes.stdout is not None
            (sampler,) = samplers_of(int(crashes.stdout.readline()))
            crashes.communicate("\n", timeout=HANGING_S)

        until(lambda: has_ended(sampler), "the sampler's end")

    @pytest.mark.process
    def test_killed_sampler(self) -> None:
        """If the sampler is killed, its samples stay, the session says so, and the program continues."""
        monitor = MemoryMonitor(interval=0.02).start()
        wait_for_sample(monitor)
        (sampler,) = samplers_of(os.getpid())
        os.kill(sampler, signal.SIGKILL)
        until(lambda: has_ended(sampler), "the sampler's end")
        with pytest.warns(RuntimeWarning, match="the recording ended early"):
            monitor.stop()
        session = monitor.session

        assert session is not None
        assert len(monitor.get_data()[0]) >= 1
        assert not session.finished
        assert "the recorder was killed" in session.warnings[0]

    @pytest.mark.process
    def test_fork(self) -> None:
        """A forked child ends without touching its parent's recording."""
        monitor = MemoryMonitor(interval=0.02).start()
        child = os.fork()
        if child == 0:
            monitor.stop()
            os._exit(0)
        os.waitpid(child, 0)
        before = len(monitor.get_data()[0])
        wait_for_sample(monitor)
        monitor.stop()

        assert len(monitor.get_data()[0]) > before

    @pytest.mark.process
    @pytest.mark.long
    @pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
    def test_multiprocessing(self, tmp_path: pathlib.Path, method: str) -> None:
        """Workers of every start method count, and can record themselves."""
        (tmp_path / "work.py").write_text("""
import pathlib
from nncftools import MemoryMonitor
from tests.api.sampled import begin_to_read, wait_for_sample
from tests.waiting import until
def work(size):
    begin_to_read()
    with MemoryMonitor(interval=0.02) as monitor:
        held = bytearray(size << 20); held[::4096] = b'x' * len(held[::4096])
        wait_for_sample(monitor)
        pathlib.Path("holds").touch()
        until(pathlib.Path("seen").exists)
    return max(monitor.get_data(memory_from_zero=True)[1])
""")
        (tmp_path / "main.py").write_text(f"""
import multiprocessing, pathlib
from work import work
from nncftools import MemoryMonitor
from tests.api.sampled import wait_for_sample
from tests.waiting import until
if __name__ == "__main__":
    with MemoryMonitor(interval=0.02) as monitor, multiprocessing.get_context("{method}").Pool(1) as pool:
        inner = pool.apply_async(work, [50])
        until(lambda: pathlib.Path("holds").exists() or inner.ready())
        wait_for_sample(monitor)
        pathlib.Path("seen").touch()
        print(inner.get())
    print(max(monitor.get_data(memory_from_zero=True)[1]))
""")
        words = [sys.executable, "main.py"]
        done = subprocess.run(
            words, cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True, check=True, timeout=HANGING_S
        )
        inner, outer = map(float, done.stdout.split())

        assert inner == pytest.approx(50, abs=1)
        assert outer > 50

    @pytest.mark.process
    def test_no_temporary_folder(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """If no folder is writable, the journal is kept in memory."""

        def fail(**_: object) -> str:
            raise FileNotFoundError("no usable temporary directory")

        monkeypatch.setattr("tempfile.mkdtemp", fail)
        with MemoryMonitor(interval=0.02) as monitor:
            wait_for_samples(monitor, 2)

        assert len(monitor.get_data()[0]) > 1


@pytest.mark.process
class TestValues:
    def test_now(self) -> None:
        """RSS now is that of this process and, by default, of its descendants; SYSTEM is the machine's."""
        text = "import sys; held = bytearray(50 << 20); print(flush=True); input()"
        pipe = subprocess.PIPE
        with subprocess.Popen([sys.executable, "-S", "-c", text], stdin=pipe, stdout=pipe, text=True) as child:
            assert child.stdout is not None
            child.stdout.readline()
            family, alone = MemoryMonitor.get_rss_memory(), MemoryMonitor.get_rss_memory(include_child_processes=False)
            child.communicate("\n")

        assert family - alone > 50 * MIB
        assert alone > 5 * MIB
        assert MemoryMonitor.get_system_memory() > family - alone


class TestTypes:
    def test_as_text(self) -> None:
        """A type is shown as NNCF's is; its value is the metric's name, and it equals that."""
        assert f"{MemoryType.RSS}{MemoryType.RSS:>15}" == "MemoryType.RSS MemoryType.RSS"
        assert MemoryType("rss").value == MemoryType.RSS == "rss"


class TestLogs:
    def test_text(self, tmp_path: pathlib.Path) -> None:
        """A log has a row for each time with a value, the total time and the maximum; the picture is next to it."""
        monitor = MemoryMonitor(memory_unit=MemoryUnit.GB)
        monitor.save_memory_logs(
            [0.0, 0.5, 9.0], [1.0, 2.25], str(tmp_path / "new"), plot_title=None, filename_suffix="_x"
        )

        assert (tmp_path / "new/rss_memory_usage_x.txt").read_text() == (
            "0.000 1.000\n0.500 2.250\nTotal time: 0.500\nMax memory: 2.250 (GB)\n"
        )
        assert (tmp_path / "new/rss_memory_usage_x.png").read_bytes().startswith(b"\x89PNG")

    def test_nothing(self, tmp_path: pathlib.Path) -> None:
        """Without data the log says so, and there is no picture."""
        MemoryMonitor().save_memory_logs(*MemoryMonitor().get_data(), tmp_path, filename_suffix=None)

        assert (tmp_path / "rss_memory_usage.txt").read_text().startswith("No measurements recorded.\n")
        assert [path.name for path in tmp_path.iterdir()] == ["rss_memory_usage.txt"]

    @pytest.mark.long
    def test_drawn_again(self, tmp_path: pathlib.Path) -> None:
        """A saved log can be drawn again: its own picture, or one with a suffix; another file is refused."""
        monitor = MemoryMonitor()
        for suffix in ("", "_from-zero"):
            monitor.save_memory_logs([0.0, 0.5], [-1.0, 2.25], tmp_path, plot_title="A title", filename_suffix=suffix)
        picture = tmp_path / "rss_memory_usage.png"
        first = picture.read_bytes()
        picture.unlink()
        monitor.save_memory_plot(tmp_path / "rss_memory_usage.txt", "A title", filename_suffix=None)
        monitor.save_memory_plot(str(tmp_path / "rss_memory_usage_from-zero.txt"), "Another title")
        monitor.save_memory_plot(tmp_path / "rss_memory_usage_from-zero.txt", filename_suffix="_again")
        (tmp_path / "bad.txt").write_text("nonsense\n")

        assert picture.read_bytes() == first
        assert {path.stem.removeprefix("rss_memory_usage") for path in tmp_path.glob("*.png")} == {
            *("", "_from-zero", "_from-zero_again"),
        }
        with pytest.raises(NncfToolsError, match=r"bad\.txt: .* line 1: 'nonsense': 2 values expected"):
            monitor.save_memory_plot(tmp_path / "bad.txt")
        with pytest.raises(FileNotFoundError, match=r"missing\.txt"):
            monitor.save_memory_plot(tmp_path / "missing.txt")


@pytest.mark.process
class TestContext:
    @pytest.mark.long
    def test_maximum(self, recorders: list[Recorder], tmp_path: pathlib.Path) -> None:
        """After the block, there are the largest values of RSS and SYSTEM above the baseline, and eight files."""
        begin_to_read()
        recorders.clear()
        with memory_monitor_context(interval=0.02, save_dir=tmp_path) as data:
            held = bytearray(50 * MIB)
            held[::4096] = b"x" * len(held[::4096])
            wait_for_sample(*recorders)
            inside = dict(data)
        del held

        assert inside == {}
        assert data[MemoryType.RSS] == pytest.approx(50, rel=0.03)
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
            f"{kind}_memory_usage{zero}.{ending}"
            for kind in ("rss", "system")
            for zero in ("", "_from-zero")
            for ending in ("png", "txt")
        )

    @pytest.mark.long
    def test_as_nncf_uses_it(self, tmp_path: pathlib.Path) -> None:
        """The value of ``as`` is the context: with its settings, monitors and data; it is also the data's mapping."""
        context = memory_monitor_context(interval=0.02, return_max_value=True, save_dir=tmp_path)
        with context as mmc:
            inside = [len(monitor.get_data()[0]) > 0 for monitor in mmc.memory_monitors.values()]
        (tmp_path / "rss_memory_usage.txt").unlink()

        assert mmc is context
        assert inside == [True, True]
        assert (mmc.return_max_value, mmc.save_dir) == (True, tmp_path)
        assert dict(mmc) == mmc.memory_data
        assert mmc.memory_data.keys() == mmc.memory_monitors.keys() == {MemoryType.RSS, MemoryType.SYSTEM}

    def test_used_again(self) -> None:
        """An exception passes; the context can be used again, but not while it runs, with the settings of then."""
        context = memory_monitor_context(interval=0.02, memory_unit=MemoryUnit.B)
        with pytest.raises(KeyError, match="mine"), context:
            raise KeyError("mine")
        assert set(context) == {MemoryType.RSS, MemoryType.SYSTEM}
        context.return_max_value = False
        with context:
            with pytest.raises(RuntimeError, match="already"), context:
                pass
            wait_for_samples(context.memory_monitors[MemoryType.RSS], 2)
        found = context.memory_data[MemoryType.RSS]

        assert isinstance(found, tuple)
        assert len(found[0]) > 1

    def test_subclass(self) -> None:
        """A subclass can add a monitor, and act at the end."""

        class Also(memory_monitor_context):
            def __init__(self) -> None:
                super().__init__(interval=0.02)
                self.memory_monitors[MemoryType.VMS] = MemoryMonitor(0.05, MemoryType.VMS)

            def __exit__(self, *error: object) -> None:
                super().__exit__(*error)
                self.done = sorted(self.memory_data)

        with Also() as mmc:
            assert mmc
        assert mmc.done == ["rss", "system", "vms"]

    def test_failing_start(self, monkeypatch: pytest.MonkeyPatch, recorders: list[Recorder]) -> None:
        """If one sampler cannot start, none runs."""
        context = memory_monitor_context(interval=0.02)
        context.memory_monitors[MemoryType.VMS] = MemoryMonitor(0.05, MemoryType.VMS)
        start = Recorder.start

        def fail_second(recorder: Recorder) -> None:
            if len(recorders) > 1:
                raise NncfToolsError("no more")
            start(recorder)

        monkeypatch.setattr(Recorder, "start", fail_second)
        with pytest.raises(NncfToolsError, match="no more"), context:
            pass
        assert [recorder.is_running for recorder in recorders] == [False, False]
