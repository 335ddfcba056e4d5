"""The journal, which a recording writes while it runs: its plan, lines, writer and reader."""
