"""Every output of a session says the same."""
