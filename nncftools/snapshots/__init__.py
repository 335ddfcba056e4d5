"""Stacks and mappings of processes whose memory rises, taken by a helper process within a budget of CPU time."""
