"""Compress a model in many ways, and measure each in recordings."""
