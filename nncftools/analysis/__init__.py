"""Pure functions from a session to what is worth knowing of it."""
