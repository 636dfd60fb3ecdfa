"""Access patterns in hardware: address walkers, lane readers, lane writers."""
