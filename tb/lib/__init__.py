"""Tests of the small reusable parts."""
