"""Programs that know their own peak: its size, its moment, its operation and its process."""
