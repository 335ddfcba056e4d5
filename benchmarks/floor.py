"""What a loop that only sleeps costs here, the least that sampling can cost: ``python -m benchmarks.floor``."""

from __future__ import annotations

import statistics
import time

RUNS = 5
_NANOSECONDS = 1e9


def slept(interval_s: float, wake_ups: int) -> tuple[float, float]:
    """Sleep to absolute deadlines; return CPU seconds per 1,000 wake-ups and the share that was missed."""
    interval_ns = round(interval_s * _NANOSECONDS)
    begin_s, start_ns = time.process_time(), time.monotonic_ns()
    due = missed = 0
    for _ in range(wake_ups):
        time.sleep(max(0, start_ns + due * interval_ns - time.monotonic_ns()) / _NANOSECONDS)
        passed = (time.monotonic_ns() - start_ns) // interval_ns
        missed += passed - due
        due = passed + 1
    return (time.process_time() - begin_s) / wake_ups * 1000, missed / (wake_ups + missed)


def main() -> None:
    """Measure and print."""
    cpu_s = statistics.median(slept(0.01, 500)[0] for _ in range(RUNS))
    shares = sorted(slept(0.001, 3000)[1] for _ in range(RUNS))
    print(f"CPU s per 1,000 wake-ups at 10 ms: {cpu_s:.3f}")
    print(f"deadlines missed at 1 ms: {shares[0]:.1%} to {shares[-1]:.1%}, median {statistics.median(shares):.1%}")


if __name__ == "__main__":
    main()
