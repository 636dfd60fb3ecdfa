"""Benches of the vector engine."""
