"""Tools for those who test against this library."""
