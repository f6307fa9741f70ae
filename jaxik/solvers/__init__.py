"""Solvers: one algorithm a file, one shared loop."""
