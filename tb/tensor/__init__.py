"""Bench of the tensor engine."""
