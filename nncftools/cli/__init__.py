"""Subcommands: parse options, call a function, and return an exit status."""
