"""Memory limits of a run, what it needs at least, and why something died."""
