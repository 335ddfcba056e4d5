"""A program to take pictures of: loads, converts, compresses in three processes and saves; 40 s, 600 MiB."""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
from numpy.typing import NDArray

from nncftools import operation

MIB = 1 << 20
STEP_S = 0.25


def grown(size_mib: int, seconds: float, cpu: float = 0.0) -> list[NDArray[np.uint8]]:
    """Return arrays that are filled one after another; ``cpu`` is the part of the time in which something computes."""
    steps = max(1, round(seconds / STEP_S))
    arrays = []
    for _ in range(steps):
        arrays.append(np.ones(size_mib * MIB // steps, dtype=np.uint8))
        busy(STEP_S, cpu)
    return arrays


def busy(seconds: float, cpu: float) -> None:
    """Compute in a part of the time."""
    begin_s = time.monotonic()
    while time.monotonic() - begin_s < seconds * cpu:
        np.sqrt(np.arange(10_000.0))
    time.sleep(max(0.0, seconds - (time.monotonic() - begin_s)))


def worker(number: int) -> None:
    """Hold memory that comes and goes."""
    for wave in range(6):
        kept = grown(60 + 25 * number + 10 * (wave % 3), 1.0, 0.2 + 0.15 * number)
        busy(1.0, 0.3)
        del kept


def compress() -> None:
    """Let three processes work."""
    words = [sys.executable, __file__, "--group-size", "128", "--worker"]
    workers = [subprocess.Popen([*words, str(number)]) for number in range(3)]
    for done in range(6):
        print(f"compressed {done * 24:3d} of 144 layers", flush=True)
        busy(2.0, 0.1)
    for one in workers:
        one.wait()


def main() -> None:
    """Do it all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", type=int)
    parser.add_argument("--group-size", type=int)
    given = parser.parse_args()
    if given.worker is not None:
        worker(given.worker)
        return
    print("loading tiny-llama (22 layers, 1.1 B parameters)", flush=True)
    with operation("Model Loading"):
        weights = grown(180, 6, 0.2)
    print("converting to OpenVINO: 22 of 22 layers", flush=True)
    with operation("Conversion"):
        graph = grown(150, 8, 0.7)
    print("compressing weights: int4_asym, group size 128", flush=True)
    with operation("Weight Compression"):
        compress()
    del graph
    print("saving openvino_model.bin", flush=True)
    with operation("Saving"), tempfile.TemporaryDirectory() as folder:
        for place, part in enumerate(weights):
            pathlib.Path(folder, f"{place}.bin").write_bytes(part.tobytes())
            busy(STEP_S, 0.1)
        busy(4, 0.1)


if __name__ == "__main__":
    main()
