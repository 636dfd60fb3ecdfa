"""Proofs: properties of blocks for all inputs, by yosys-smtbmc and z3, each with a mutant that breaks it."""
