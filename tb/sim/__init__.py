"""Tests of simulators, netlists and workloads."""
