"""What the Python API costs and misses: ``python -m benchmarks.api`` prints a Markdown table.

Each row is the median of several fresh interpreters. *Held*: a native call holds the interpreter (GIL) for 5 s; *busy*:
four Python threads compute for 5 s. Samples are those taken of those due; the gap is the longest between two.
"""

from __future__ import annotations

import statistics
import subprocess
import sys

RUNS = 5
_HELD = "import ctypes; ctypes.PyDLL(None).usleep(5_000_000)"
_BUSY = """
import threading, time
end = time.monotonic() + 5
def burn():
    while time.monotonic() < end: sum(range(1000))
threads = [threading.Thread(target=burn) for _ in range(4)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
"""
_APIS = {
    "MemoryMonitor": ("monitor = MemoryMonitor(interval={interval}).start()", "monitor.stop()", "monitor.session"),
    "Profiler": ("profiler = Profiler({interval}).start()", "profiler.stop()", "profiler.session"),
    "QEffMemoryProfiler": (
        "profiler = QEffMemoryProfiler({interval}); profiler.start_monitoring()",
        "profiler.stop_monitoring()",
        "profiler.session",
    ),
}


def median(program: str) -> float:
    """Return the median of the number that a program prints."""
    return statistics.median(float(_printed(program)[0]) for _ in range(RUNS))


def _printed(program: str) -> list[str]:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def punctuality(api: str, interval_s: float, load: str) -> str:
    """Return the share of samples and the longest gap under a load."""
    start, stop, session = (words.format(interval=interval_s) for words in _APIS[api])
    tell = f"s = {session}; print(len(s.samples) / (len(s.samples) + s.sampler.missed), s.sampler.longest_gap_s)"
    rows = [_printed(f"from nncftools import {api}\n{start}\n{load}\n{stop}\n{tell}") for _ in range(RUNS)]
    shares, gaps = ([float(row[place]) for row in rows] for place in (0, 1))
    return f"{statistics.median(shares):.1%} | {statistics.median(gaps) * 1000:.0f} ms"


_TIMED = "import time; begin = time.perf_counter(); {}; print((time.perf_counter() - begin) * 1000)"
_IMPORTED = "from nncftools import MemoryMonitor; monitor = MemoryMonitor(interval=0.02)"
_FIRST = f"{_IMPORTED}; monitor.start(); monitor.stop()"
_MEMORY = f"""
{_IMPORTED}
def own():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmRSS")).split()[1]) / 1024
before = own(); monitor.start(); print(own() - before); monitor.stop()
"""
_GROWN = f"""
import time
{_IMPORTED}.start()
held = bytearray(100 << 20); held[::4096] = b"x" * len(held[::4096]); time.sleep(0.2)
monitor.stop(); print(max(monitor.get_data(memory_from_zero=True)[1]))
"""


def main() -> None:
    """Measure and print."""
    import_ms = median(_TIMED.format("import nncftools"))
    start_ms = median(f"{_FIRST}; {_TIMED.format('monitor.start()')}; monitor.stop()")
    print(f"| medians of {RUNS} runs | limit | measured |\n|---|---:|---:|")
    print(f"| `import nncftools` | 5 ms | {import_ms:.1f} ms |")
    print(f"| `MemoryMonitor.start()` | 60 ms | {start_ms:.0f} ms |")
    print(f"| memory that a running monitor adds to the program | 2 MiB | {median(_MEMORY):.1f} MiB |")
    print(f"| peak above the baseline of 100 MiB touched | 99 to 101 MiB | {median(_GROWN):.2f} MiB |")
    print("\n| interpreter | interval | API | samples | longest gap |\n|---|---:|---|---:|---:|")
    for load, text in (("held", _HELD), ("busy", _BUSY)):
        for interval_s in (0.1, 0.01):
            for api in _APIS:
                print(f"| {load} | {interval_s * 1000:.0f} ms | `{api}` | {punctuality(api, interval_s, text)} |")


if __name__ == "__main__":
    main()
