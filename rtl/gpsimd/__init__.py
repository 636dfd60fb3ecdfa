"""GpSimd engine: numbers of elements, masks, gathers, reductions across partitions."""
