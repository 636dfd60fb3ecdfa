"""Benches of core control."""
