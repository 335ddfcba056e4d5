"""Allocate ten 256 MiB arrays, one after another, and free them: the memory monitor's well-known example.

python examples/allocate.py           about 2.5 GiB and 20 seconds
python examples/allocate.py --small   ten arrays of 16 MiB, about 2 seconds
"""

import argparse
import gc
import time

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

ARRAYS = 10
FULL = 256 << 20
SMALL = 16 << 20


def allocate(size: int, pause_s: float) -> list[NDArray[np.float64]]:
    """Return ten arrays of ``size`` bytes, each filled with random numbers and followed by a pause."""
    arrays = []
    for _ in tqdm(range(ARRAYS)):
        arrays.append(np.random.default_rng().random(size // 8))
        time.sleep(pause_s)
    return arrays


def main() -> None:
    """Allocate, free, and wait a moment so that the fall shows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="16 MiB arrays and short pauses")
    small = parser.parse_args().small
    pause_s = 0.15 if small else 1.0
    arrays = allocate(SMALL if small else FULL, pause_s)
    del arrays
    gc.collect()
    time.sleep(2 * pause_s)


if __name__ == "__main__":
    main()
