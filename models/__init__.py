"""Golden models in NumPy: formats, ISA, registers, configuration and bit-exact behaviour. Imports nothing of ours."""
