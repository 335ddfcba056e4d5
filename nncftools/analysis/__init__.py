"""Pure functions that compute figures from a session."""
