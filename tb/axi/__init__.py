"""Benches of the memory crossbar and of the host port."""
