"""What a terminal shows of it."""
