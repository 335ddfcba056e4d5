"""Measure what reading GPUs costs, against the stand-in for NVML of the tests: ``python -m benchmarks.devices``.

It needs gcc. The helper's CPU time is a part of one core, over ``--seconds``; its memory is the kernel's high-water
mark. The sampler's CPU time is that with and without devices, in pairs. ``--picture FILE`` draws a run instead.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from benchmarks import machine
from nncftools.analysis.session import Session

_ROOT = pathlib.Path(__file__).parent.parent
_SOURCE = _ROOT / "tests" / "sampler" / "devices" / "nvml.c"
_BURNER = _ROOT / "tests" / "burners" / "device.py"
_GIB = 1 << 30
_STEPS = ("Model Loading:2.5:0.5", "Quantization:4:14:31", "Weight Compression:3:22:46", "Saving:2:6")
_TICKS = os.sysconf("SC_CLK_TCK")
_LABEL = b"helper_process.py\0devices"


def stand_in(folder: pathlib.Path, processes: int = 20) -> dict[str, str]:
    """Make the stand-in, with a GPU that many processes use; return the environment in which it is found."""
    library, script = folder / "libnvidia-ml.so.1", folder / "script"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, _SOURCE], check=True)
    listed = "".join(f"process 0 C {2_000_000_000 + number} {_GIB}\n" for number in range(processes))
    script.write_text(f"gpu 0 {80 * _GIB} {30 * _GIB} 50 0\n{listed}")
    return {**os.environ, "NNCF_TOOLS_NVML": str(library), "NVML_SCRIPT": str(script)}


def draw(picture: pathlib.Path) -> None:
    """Draw host and device memory of a run."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        environment = stand_in(folder, 0)
        path = f"{pathlib.Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
        command = ["nncf-tools", "profile", "--no-stacks", "--no-plot", "-q", "-o", folder / "run.json", "python"]
        words = [*command, _BURNER.name, *_STEPS]
        subprocess.run(words, env={**environment, "PATH": path}, check=True, cwd=_BURNER.parent)
        report = [sys.executable, "-m", "nncftools", "report", folder / "run.json", "--panels", picture, "--force"]
        subprocess.run(report, check=True, stdout=subprocess.DEVNULL)


def helper_of(pid: int) -> int:
    """Return the PID of a command line's helper, which begins after a moment."""
    for _ in range(200):
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for child in children:
            if _LABEL in pathlib.Path(f"/proc/{child}/cmdline").read_bytes():
                return int(child)
        time.sleep(0.01)
    raise SystemExit("there is no helper")


def cost(environment: dict[str, str], seconds: float, folder: pathlib.Path) -> tuple[float, float]:
    """Return the CPU seconds of a helper per second, and its high-water mark in MiB."""
    command = [sys.executable, "-m", "nncftools", "monitor", "-q", "--no-plot", "--force", "-o", folder / "cost.json"]
    with subprocess.Popen([*command, "sleep", f"{seconds + 3}"], env=environment) as recording:
        helper = helper_of(recording.pid)
        time.sleep(seconds)
        fields = pathlib.Path(f"/proc/{helper}/stat").read_text().rpartition(")")[2].split()
        status = pathlib.Path(f"/proc/{helper}/status").read_text()
    mark = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    return (int(fields[11]) + int(fields[12])) / _TICKS / seconds, mark


def sampler_cpu(environment: dict[str, str], seconds: float, folder: pathlib.Path) -> float:
    """Return the CPU seconds of a sampler per 1,000 samples at 10 ms."""
    command = [sys.executable, "-m", "nncftools", "monitor", "-q", "--no-plot", "--force", "-i", "0.01"]
    subprocess.run([*command, "-o", folder / "run.json", "sleep", f"{seconds}"], env=environment, check=True)
    sampler = Session.load(folder / "run.json").sampler
    return 1000 * (sampler.cpu_s or 0.0) / (sampler.taken or 1)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--picture", type=pathlib.Path)
    options = parser.parse_args()
    if options.picture is not None:
        draw(options.picture)
        return
    print(machine.description())
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        environment = stand_in(folder)
        share, mark = cost(environment, options.seconds, folder)
        print(f"helper, one GPU, 20 processes: {share:.2%} of a core, {mark:.1f} MiB")
        without = {key: value for key, value in environment.items() if key != "NNCF_TOOLS_NVML"}
        pairs = [[sampler_cpu(of, 10, folder) for of in (without, environment)] for _ in range(options.runs)]
    for text, values in zip(("without devices", "with devices"), zip(*pairs, strict=True), strict=True):
        print(f"sampler at 10 ms, {text}: {statistics.median(values):.3f} CPU s per 1,000 samples")


if __name__ == "__main__":
    main()
