"""The live view: draws a recording in a terminal during the run, and replays a session."""
