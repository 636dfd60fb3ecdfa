"""Processing element: operand decoding, multiplier bank, exact dot product, FP32 step."""
