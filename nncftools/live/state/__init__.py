"""What is known of a run up to now."""
