"""One file per output. A renderer knows sessions, but not where they come from."""
