"""``nncf-tools forecast``: the needs of a model, from runs of slices."""
