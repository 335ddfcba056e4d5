"""What reading a log that is larger than memory costs: ``python -m benchmarks.importing``."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

_GB = 10**9
_LINES = 20_000
_READ = """
import json, resource, sys
from nncftools.importers.source import read_session
found = read_session(sys.argv[1])
usage = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([found.sampler.taken, len(found.samples), usage.ru_utime + usage.ru_stime, usage.ru_maxrss]))
"""


def stream(path: pathlib.Path, gigabytes: float) -> None:
    """Write so much of an mprof log, 20,000 samples a second, to a FIFO."""
    piece = b"".join(b"MEM %d.%06d TIME.%04d\n" % (100 + row % 7, row, row // 2) for row in range(_LINES))
    with path.open("wb") as file:
        for second in range(round(gigabytes * _GB / len(piece.replace(b"TIME", b"0" * 10)))):
            file.write(piece.replace(b"TIME", b"%d" % (1_400_000_000 + second)))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gb", type=float, default=1.0, help="how much to read (10 takes some six minutes)")
    gigabytes = parser.parse_args().gb
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "mprofile.dat"
        os.mkfifo(log)
        threading.Thread(target=stream, args=(log, gigabytes), daemon=True).start()
        words = [sys.executable, "-c", _READ, str(log)]
        taken, kept, cpu_s, kib = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
    print(f"{gigabytes:g} GB of mprof's lines through a FIFO: {taken:,} samples, {kept:,} kept")
    print(
        f"CPU {cpu_s / gigabytes:.1f} s per GB, {taken / cpu_s / 1e6:.2f} million samples per s; {kib / 1024:.0f} MiB"
    )


if __name__ == "__main__":
    main()
