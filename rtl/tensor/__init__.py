"""Tensor engine: weight loads, moving columns, results into PSUM."""
