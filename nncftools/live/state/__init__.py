"""The state of a run up to now."""
