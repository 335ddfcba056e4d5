"""Pure functions that compute values such as memory peaks and durations from a session (the data of a recorded run)."""
