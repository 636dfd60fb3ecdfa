"""Tensor array: rows of processing elements, skew and de-skew, weight loading."""
