"""Tests of the on-core memories."""
