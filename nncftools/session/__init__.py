"""The session of a run: columns, processes, marks and peaks; loading, saving, recovery from a journal."""
