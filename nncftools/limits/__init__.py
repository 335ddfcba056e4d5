"""Memory limits: the limits of a run, the memory that a run needs, and the verdict on why a process died."""
