"""Bounded proofs: Yosys and an SMT solver over every input, not random ones."""
