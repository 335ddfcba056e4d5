"""Uses a GPU that is not there: writes the script of the stand-in for NVML, and has a torch that counts its memory.

Its arguments are steps, ``NAME:SECONDS:GIB[:PEAK]``: an operation in which the allocator holds GIB and reached PEAK.
With ``oom`` as the last argument it ends with torch's exception, with ``oom-somewhere`` with one that names no GPU.
NVML_SCRIPT names the script; NVML_LINES are further lines of it, where PID stands for this process.
"""

import contextlib
import os
import sys
import time
import types
from pathlib import Path

from nncftools import operation

GIB = 1 << 30
OTHERS, CONTEXT = 3 * GIB, GIB // 2
SCRIPT = Path(os.environ["NVML_SCRIPT"])


class Cuda(types.ModuleType):
    """What the hook asks of ``torch.cuda``."""

    is_begun = False
    current = peak = 0

    def __init__(self) -> None:
        super().__init__("torch.cuda")
        vars(self)["is_initialized"] = self.has_begun

    def has_begun(self) -> bool:
        """Return whether CUDA has begun."""
        return self.is_begun

    def device_count(self) -> int:
        """Return 1; the hook must not ask before CUDA has begun."""
        if not self.is_begun:
            raise AssertionError("the hook must not begin CUDA")
        return 1

    def get_device_properties(self, number: int) -> object:
        """Return its UUID."""
        return types.SimpleNamespace(uuid=str(number))

    def memory_stats_as_nested_dict(self, _: int) -> dict[str, dict[str, dict[str, int]]]:
        """Return what the allocator counts."""
        return {"allocated_bytes": {"all": {"current": self.current, "peak": self.peak}}}


class OutOfMemoryError(RuntimeError):
    """As torch has it."""


def write(reserved: int) -> None:
    """Write what the driver answers from now on."""
    held = reserved + CONTEXT
    lines = os.environ.get("NVML_LINES", f"process 0 C PID {held}\nprocess 0 C 1 {OTHERS}\n")
    text = f"gpu 0 {80 * GIB} {OTHERS + held} {60 if reserved else 0} 0\n{lines}\n"
    new = SCRIPT.with_suffix(".new")
    new.write_text(text.replace("PID", str(os.getpid())))
    new.replace(SCRIPT)


torch = types.ModuleType("torch")
cuda = torch.cuda = Cuda()
sys.modules["torch"], sys.modules["torch.cuda"] = torch, cuda
host = []
for step in sys.argv[1:]:
    if step.startswith("oom"):
        names = " GPU 0 has a total capacity of 80.00 GiB of which" if step == "oom" else ""
        raise OutOfMemoryError(f"CUDA out of memory. Tried to allocate 20.00 GiB.{names}")
    name, seconds, *sizes = step.split(":")
    held, most = (int(float(size) * GIB) for size in (sizes[0], sizes[-1]))
    with operation(name) if name else contextlib.nullcontext():
        cuda.is_begun = cuda.is_begun or most > 0
        cuda.current, cuda.peak = held, max(cuda.peak, most)
        write(max(cuda.peak, held))
        host.append(bytearray(min(held, GIB) // 16))
        time.sleep(float(seconds))
