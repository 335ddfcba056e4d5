"""Read MIB mebibytes in a child process, write what both have read by system calls to FILE: read.py FILE DATA MIB"""

import subprocess
import sys

from sampling import write

with open(sys.argv[2], "wb") as file:  # noqa: PTH123 — as small as possible
    file.truncate(int(sys.argv[3]) << 20)
script = f"f = open({sys.argv[2]!r}, 'rb', 0)\nwhile f.read(1 << 20): pass"
subprocess.run([sys.executable, "-S", "-E", "-c", script], check=True)
with open("/proc/self/io") as counters:  # noqa: PTH123 — the same; it holds those of children that were waited for
    write(sys.argv[1], int(counters.readline().split()[1]))
