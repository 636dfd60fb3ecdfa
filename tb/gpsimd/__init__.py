"""Benches of the gpsimd engine."""
