"""A helper process reads the stacks and mappings of processes whose memory rises, within a budget of CPU time."""
