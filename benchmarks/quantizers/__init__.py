"""Programs that quantize a small model by the libraries of the catalogue."""
