"""Reads marks logs and sidecars: turns the lines into the operations of a session."""
