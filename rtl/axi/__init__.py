"""AXI at the chip's edge: memory crossbar, host port."""
