"""A session in a notebook: a chart and tables that take the notebook's own colours, and five lines of text."""
