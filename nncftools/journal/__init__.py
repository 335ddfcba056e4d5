"""The journal: the file that a recording writes while the command runs. Its plan, its writer and its reader."""
