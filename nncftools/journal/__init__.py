"""The journal that a recording writes during the run: plan, lines, writer and reader."""
