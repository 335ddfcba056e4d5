"""Four operations that rest before they work, the second reads MIB mebibytes in a child process: phases.py MIB"""

import pathlib
import subprocess
import sys
import time

import nncftools

path = pathlib.Path("read.bin")
with path.open("wb") as file:
    file.truncate(int(sys.argv[1]) << 20)
with nncftools.operation("Model Loading"):
    time.sleep(0.1)
    held = bytearray(60 << 20)
    held[::4096] = b"x" * len(held[::4096])
    time.sleep(0.2)
with nncftools.operation("Export"):
    time.sleep(0.1)
    script = f"f = open({str(path)!r}, 'rb', 0)\nwhile f.read(1 << 20): pass"
    subprocess.run([sys.executable, "-S", "-E", "-c", script], check=True)
nncftools.mark_operation("Compilation")
time.sleep(0.1)
more = bytearray(90 << 20)
more[::4096] = b"x" * len(more[::4096])
time.sleep(0.2)
nncftools.mark_operation("Cleanup")
time.sleep(0.1)
del held, more
time.sleep(0.2)
print("done")
