"""The sampler: a separate process that measures a process tree, and appends the samples to a file, the journal.

On Linux, the sampler imports only a few modules of the standard library, because each import takes memory during the
whole recording.
"""
