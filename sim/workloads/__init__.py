"""Workloads: programs and data for the simulated chip, with what they should give."""
