"""Vector engine: FP32 lanes between access patterns."""
