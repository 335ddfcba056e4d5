"""What a recording writes while it runs: the lines, the plan, their writer, their reader, and the file itself."""
