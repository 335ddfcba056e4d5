"""Read MIB mebibytes in a child process: read.py FILE MIB"""

import subprocess
import sys

size = int(sys.argv[2]) * 2**20
with open(sys.argv[1], "wb") as file:  # noqa: PTH123 — as small as possible
    file.write(b"x" * size)
script = f"f = open({sys.argv[1]!r}, 'rb', 0)\nwhile f.read(1 << 20): pass"
subprocess.run([sys.executable, "-S", "-E", "-c", script], check=True)
