"""Testbenches, mirroring the tree: pytest launchers and cocotb benches."""
