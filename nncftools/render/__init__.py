"""One file per output. A renderer knows sessions and nothing of where they come from."""
