"""The result of ``fit``: how little memory would do, in words, as a table and as a picture."""
