"""Outputs that other programs read."""
