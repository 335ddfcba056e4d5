"""The sampler: a separate process that watches a process tree, and appends figures to a journal.

On Linux, the sampler imports only a few modules of the standard library, because each import takes memory during the
whole recording.
"""
