"""How little memory would do for a command: a search by runs under limits."""
