"""Benches of the FP32 tiles."""
