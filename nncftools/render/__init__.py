"""One file per output. A renderer knows sessions, but not where sessions come from."""
