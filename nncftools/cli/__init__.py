"""One file per subcommand: parse, call, and turn the result into an exit status."""
