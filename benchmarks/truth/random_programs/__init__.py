"""Judges what nncf-tools says of programs that are made up from a number, by what their processes noted themselves."""
