"""Print what memray knows of a moment: memray_sizes.py LOG TIME, in seconds since 1970.

Output: JSON, for each stack its bytes and its frames, the outermost first. Runs in the environment that has memray.
"""

import json
import sys
from bisect import bisect_right

from memray import AllocatorType, FileReader

LARGEST_MAPPING = 16 << 20
"""Programs map more than this only for files, whose size memray counts whether they are read or not."""


def main(log: str, at_s: float) -> None:
    """Print the stacks that hold memory at the last moment memray knows before a time."""
    times = [snapshot.time for snapshot in FileReader(log).get_memory_snapshots()]
    moment = bisect_right(times, at_s * 1000) - 1
    stacks = []
    for record in FileReader(log).get_temporal_allocation_records(merge_threads=True):
        size = 0
        for interval in record.intervals:
            freed = interval.deallocated_before_snapshot
            is_held = interval.allocated_before_snapshot <= moment and (freed is None or freed > moment)
            is_file = record.allocator == AllocatorType.MMAP and interval.n_bytes > LARGEST_MAPPING
            if is_held and not is_file:
                size += interval.n_bytes
        if size:
            stacks.append((size, record.stack_trace()[::-1]))
    json.dump(stacks, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
