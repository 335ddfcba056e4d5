"""Makes results of compression on a real model: what is tried, how it is measured, and the file of the results."""
