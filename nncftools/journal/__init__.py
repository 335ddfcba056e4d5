"""Write and read the journal, the file that a recording fills while the command runs."""
