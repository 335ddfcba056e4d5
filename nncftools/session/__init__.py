"""The session of a run: samples, processes, marks and peaks. Loaded from a session file or from a journal."""
