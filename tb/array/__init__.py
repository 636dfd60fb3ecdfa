"""Benches of the tensor array."""
