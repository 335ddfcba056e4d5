"""The sampler: a separate process that watches a process tree and appends to a journal.

On Linux, the sampler needs only a few modules of the standard library: every import is memory that stays resident
during the whole recording.
"""
