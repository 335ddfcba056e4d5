"""Small logs in the formats that the tools write, and a helper to open them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from nncftools.importers.source import read_session

if TYPE_CHECKING:
    from pathlib import Path

    from nncftools.analysis.session import Session

MPROF = b"""CMDLINE python 'a b.py' --fast
MEM 100.000000 1424768150.0000
MEM 300.000000 1424768150.5000
MEM 200.000000 1424768151.0000
"""
PSRECORD = b"""# Elapsed time   CPU (%)     Real (MB)   Virtual (MB)
       0.000        0.000      100.000      500.000
       0.500       80.000      300.000      800.000
       1.000       40.000      200.000      800.000
"""
PSRECORD_IO = b"""\
# Elapsed time   CPU (%)     Real (MB)   Virtual (MB)  Read count  Write count   Read bytes  Write bytes
       0.000        0.000      100.000      500.000            7            0         4096            0
       0.500        0.000      300.000      800.000            9            1        12288          512
       1.000        0.000      200.000      800.000            3            1         8192          512
"""
PSRECORD_CSV = b"""elapsed_time,nproc,cpu,mem_real,mem_virtual,read_count,write_count,read_bytes,write_bytes
8.4e-05,1,0.0,100.0,500.0,7,0,4096,0
0.5,3,80.0,300.0,800.0,9,1,12288,512
1.0,1,40.0,200.0,800.0,3,1,8192,512
"""
NNCF = b"""0 100.000
0.5001 300.000
1.0002 200.000
Total time: 1.0002
Max memory: 300.000 (MiB)"""
LLM_BENCH = NNCF.replace(b"Total", b"Timestamp: 1700000000\nTotal")


def report(second: float, rss: int | None, processes: dict[int, int], samples: int = 1) -> dict[str, Any]:
    """Return a report of con-duct, this many seconds after noon."""
    of = {
        str(pid): {"pcpu": 50.0, "pmem": 0.1, "rss": size, "vsz": 2 * size, "etime": "00:01", "cmd": f"work {pid}"}
        for pid, size in processes.items()
    }
    return {
        "timestamp": f"2026-11-21T12:00:{second:09.6f}+01:00",
        "num_samples": samples,
        "processes": of,
        "totals": {"pmem": 0.1, "pcpu": 50.0, "rss": rss, "vsz": None if rss is None else 2 * rss},
        "averages": {"rss": rss, "num_samples": samples},
    }


def json_lines(*documents: Any) -> bytes:  # noqa: ANN401 — any JSON
    """Return documents as con-duct writes them."""
    return b"".join(json.dumps(document).encode() + b"\n" for document in documents)


USAGE = json_lines(
    report(1, 100, {7: 100}), report(2.5, 300, {7: 200, 8: 150}, samples=3), report(4, 200, {7: 200}, samples=3)
)
INFO = json.dumps(
    {
        "command": "python a.py --fast",
        "system": {"cpu_total": 2, "memory_total": 4096, "hostname": "box", "os_name": "Linux", "arch": "x86_64"},
        "env": {},
        "schema_version": "0.2.3",
        "execution_summary": {
            "exit_code": 3,
            "peak_rss": 300,
            "start_time": 1795258800.5,
            "wall_clock_time": 4.25,
            "working_directory": "/work",
        },
    }
).encode()
USAGE_KIB = b"".join(
    json.dumps(
        {
            "timestamp": f"2026-11-21T12:00:0{second}.500000+01:00",
            "num_samples": samples,
            "processes": {"7": {"pcpu": 9.0, "pmem": 0.1, "rss": rss, "vsz": 2 * rss, "timestamp": "…"}},
            "totals": {"pmem": 0.1, "pcpu": 9.0, "rss_kb": rss, "vsz_kb": 2 * rss},
            "averages": {"rss": rss, "num_samples": samples},
        }
    ).encode()
    + b"\n"
    for second, rss, samples in ((1, 100, 1), (2, 300, 3), (4, 200, 2))
)
"""What con-duct 0.1 writes."""
INFO_KIB = json.dumps(
    {
        "command": "python a.py --fast",
        "system": {"uid": None, "memory_total": 4096, "cpu_total": 2},
        "env": {},
        "gpu": None,
        "duct_version": "0.1.0",
        "execution_summary": {
            "exit_code": -9,
            "command": "python a.py --fast",
            "logs_prefix": "x_",
            "wall_clock_time": "4.250 sec",
            "peak_rss": "300 KiB",
            "average_rss": "unknown",
            "peak_pmem": "0.1%",
            "num_samples": 6,
        },
    }
).encode()
LOGS = {
    "mprof.dat": (MPROF, "mprof"),
    "children.dat": (MPROF.replace(b"0.5000\n", b"0.5000\nCHLD 12 50.000000 1424768150.6000\n"), "mprof"),
    "functions.dat": (b"FUNC m.f 1.0 1424768150.2 2.0 1424768150.7 0\n" + MPROF, "mprof"),
    "psrecord.txt": (PSRECORD, "psrecord"),
    "io.txt": (PSRECORD_IO, "psrecord"),
    "psrecord.csv": (PSRECORD_CSV, "psrecord"),
    "rss_memory_usage.txt": (NNCF, "nncf"),
    "rss_memory_usage_0.txt": (LLM_BENCH, "nncf"),
    "usage.jsonl": (USAGE, "con-duct"),
    "info.json": (INFO, "con-duct"),
    "usage.json": (USAGE_KIB, "con-duct"),
}
"""By file name: the content, and the importer for it."""


def imported(folder: Path, text: bytes, name: str = "log", forced: str | None = None) -> Session:
    """Return a log with this text as a session."""
    path = folder / name
    path.write_bytes(text)
    return read_session(path, forced)
