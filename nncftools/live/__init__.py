"""Follow a recording while it runs and draw it in a terminal; replay one that has ended."""
