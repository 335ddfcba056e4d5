"""Random programs that know which of their lines holds how much memory, and judges of what is said about them."""
