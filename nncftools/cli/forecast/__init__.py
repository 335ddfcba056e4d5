"""``nncf-tools forecast``: what a model will need, from runs of slices of it."""
