"""What a recording writes while it runs: the lines, the plan, their writer and reader, and the file."""
