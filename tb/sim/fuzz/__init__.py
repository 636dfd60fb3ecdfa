"""Tests of the random-program generator, and what it finds."""
