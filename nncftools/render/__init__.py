"""Each module makes an output from a session, and does not know where the session comes from."""
