"""The sampler: a separate process that watches a process tree and appends to a journal.

On Linux it uses the standard library only, and little of it: every import is memory that stays resident during the
whole recording.
"""
