"""Stacks and mappings of processes whose memory rises, taken by a helper process in a budget of CPU time."""
