"""``pytest --memory``: what each test costs in memory, and limits that fail a test."""
