"""The live view: draws a recording in a terminal while the recording runs, or replays a session."""
