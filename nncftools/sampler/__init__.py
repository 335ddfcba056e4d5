"""The sampler service: a process of its own that watches a process tree and appends to a journal.

On Linux it uses the standard library only, and little of it: every import is memory that stays resident for the
whole recording.
"""
