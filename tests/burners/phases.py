"""Four operations, each sampled before it works and after; the second reads MIB mebibytes in a child: phases.py MIB

Writes to phases.txt by how many bytes the first made the process grow, and the last.
"""

import subprocess
import sys
from pathlib import Path

from sampling import own, touched, until_sampled, write

import nncftools

path = Path("read.bin")
with path.open("wb") as file:
    file.truncate(int(sys.argv[1]) << 20)
until_sampled()  # its first call imports, which takes memory
with nncftools.operation("Model Loading"):
    until_sampled()
    before = own("VmRSS")
    held = touched(60)
    write("phases.txt", own("VmRSS") - before)
    until_sampled()
with nncftools.operation("Export"):
    until_sampled()
    script = f"f = open({str(path)!r}, 'rb', 0)\nwhile f.read(1 << 20): pass"
    subprocess.run([sys.executable, "-S", "-E", "-c", script], check=True)
    until_sampled()
nncftools.mark_operation("Compilation")
until_sampled()
more = touched(90)
until_sampled()
nncftools.mark_operation("Cleanup")
until_sampled()
before = own("VmRSS")
del held, more
write("phases.txt", own("VmRSS") - before)
until_sampled()
print("done")
