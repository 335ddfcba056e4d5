"""Each module turns a session (the data of a recorded run) into an output, such as a table, a picture or a page."""
