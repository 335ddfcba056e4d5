"""``pytest --memory``: the memory peak of each test, and limits that fail a test."""
