"""Scalar engine: functions of single elements, as microcode over wide floats."""
