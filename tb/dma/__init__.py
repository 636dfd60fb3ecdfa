"""Bench of the DMA."""
