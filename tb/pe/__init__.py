"""Benches of the processing element."""
