"""``pytest --memory``: measure the memory peak of each test, and fail tests that exceed their limit."""
