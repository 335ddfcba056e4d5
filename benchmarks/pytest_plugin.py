"""Compare the cost of ``pytest --memory`` with that of pytest-memray: ``python -m benchmarks.pytest_plugin``.

Medians of paired runs: CPU seconds of pytest and of our sampler, which is no child of pytest and reports its own.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

from benchmarks.overhead import cpu_s
from benchmarks.venvs import prepared

RUNS = 3
ROOT = pathlib.Path(__file__).parents[1]
SUITES = {
    "1,000 tests that do nothing": "import pytest\n@pytest.mark.parametrize('n', range(1000))\ndef test(n): pass\n",
    "40 tests of 50,000 small objects": (
        "import pytest\n@pytest.mark.parametrize('n', range(40))\n"
        "def test(n): assert len([str(number) * 9 for number in range(50_000)]) == 50_000\n"
    ),
}


def measured(python: pathlib.Path, suite: str, folder: pathlib.Path) -> list[float]:
    """Return CPU seconds without, with ours and with pytest-memray."""
    (folder / "test_it.py").write_text(suite, encoding="utf-8")
    words = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    recording = folder / "memory.json"
    without = cpu_s(words, str(folder))
    ours = cpu_s([*words, "--memory", "--memory-output", str(recording)], str(folder))
    sampler = json.loads(recording.read_bytes())["sampler"]["cpu_s"]
    return [without, ours + sampler, cpu_s([*words, "--memray"], str(folder))]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--venv", type=pathlib.Path, help="a folder for the environment, kept for the next time")
    with tempfile.TemporaryDirectory() as folder:
        python = prepared(parser.parse_args().venv or pathlib.Path(folder) / "venv", ["pytest", "pytest-memray"])
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(ROOT)]
        subprocess.run([str(python), *install], check=True)
        print("| suite | without | `--memory` | pytest-memray |\n|---|---:|---:|---:|")
        for name, suite in SUITES.items():
            runs = [measured(python, suite, pathlib.Path(folder)) for _ in range(RUNS)]
            without, ours, memray = map(statistics.median, zip(*runs, strict=True))
            cells = [f"{cost:.2f} s ({cost / without:.2f}×)" for cost in (ours, memray)]
            print(f"| {name} | {without:.2f} s | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
