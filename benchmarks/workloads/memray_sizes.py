"""Print what memray logged at its highest heap: memray_sizes.py LOG.

Output: JSON, for each stack its bytes and its frames, the outermost first. Runs in the environment that has memray.
"""

import json
import sys

from memray import AllocatorType, FileReader

LARGEST_MAPPING = 16 << 20
"""Programs map more than this only for files, whose size memray counts whether they are read or not."""


def main(log: str) -> None:
    """Print the stacks that hold memory when memray's heap is the largest."""
    heaps = [snapshot.heap for snapshot in FileReader(log).get_memory_snapshots()]
    moment = heaps.index(max(heaps))
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
    main(sys.argv[1])
