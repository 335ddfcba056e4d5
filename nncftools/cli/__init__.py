"""The subcommands: each parses options, calls a function, and returns an exit status."""
