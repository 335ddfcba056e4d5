"""What a run is: the session, its columns, processes, marks and peaks; loading, saving, recovery from a journal."""
