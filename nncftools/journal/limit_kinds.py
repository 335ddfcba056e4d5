"""The kinds of memory limits, as journals and sessions name them."""

GROUP = "control group"
THROTTLE = "control group, memory.high"
"""Above it, the kernel slows processes down and does not kill them."""
ADDRESS_SPACE = "RLIMIT_AS"
"""Above it and the next one, allocations fail (getrlimit(2))."""
DATA = "RLIMIT_DATA"
