"""Pictures: memory over time, panels, comparisons."""
