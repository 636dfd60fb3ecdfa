"""FP32 arithmetic and casts."""
