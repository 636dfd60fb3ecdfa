"""Benches of access walkers, lane readers and lane writers."""
