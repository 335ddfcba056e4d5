"""Judges verdicts on deaths, and floors, in control groups of our own."""
