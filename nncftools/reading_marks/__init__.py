"""Reads marks logs and sidecars: turns their lines into the operations of a session."""
