"""Four operations with memory, a mapped file, CPU time, and children by subprocess and by fork: answers.py FOLDER"""
# Reports show lines of this code, so no line has a number that looks like a figure of a report.

import mmap
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

from sampling import touched

import nncftools

CHILD = "import time; held = b'x' * {}; until = time.process_time_ns() + {}\nwhile time.process_time_ns() < until: pass"


def burn(cpu_s: float) -> None:
    """Use CPU time."""
    until = time.process_time() + cpu_s
    while time.process_time() < until:
        pass


def work() -> None:
    """Be a forked copy that takes memory of its own."""
    held = touched(13)
    burn(7 / 100)
    del held


path = Path(sys.argv[1], "mapped.bin")
path.write_bytes(os.urandom(1 << 20) * 23)
with nncftools.operation("Load"), path.open("rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    sum(mapped[place] for place in range(0, len(mapped), mmap.PAGESIZE))
    held = touched(37)
    time.sleep(11 / 100)
with nncftools.operation("Compute"):
    burn(27 / 100)
    more = touched(61)
    spike = touched(9)
    del spike
    time.sleep(6 / 100)
    del more
with nncftools.operation("Children"):
    programs = [CHILD.format(mib << 20, ms * 1_000_000) for mib, ms in ((31, 130), (17, 40))]
    children = [subprocess.Popen([sys.executable, "-S", "-E", "-c", program]) for program in programs]
    for child in children:
        child.wait()
with nncftools.operation("Pool"):
    forked = [multiprocessing.get_context("fork").Process(target=work) for _ in range(2)]
    for one in forked:
        one.start()
    for one in forked:
        one.join()
time.sleep(5 / 100)
