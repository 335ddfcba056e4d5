"""Four operations, each sampled before it works and after; the second reads MIB mebibytes in a child: phases.py MIB"""

import pathlib
import subprocess
import sys

from sampling import touched, until_sampled

import nncftools

path = pathlib.Path("read.bin")
with path.open("wb") as file:
    file.truncate(int(sys.argv[1]) << 20)
with nncftools.operation("Model Loading"):
    until_sampled()
    held = touched(60)
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
del held, more
until_sampled()
print("done")
