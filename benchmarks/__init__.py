"""Measurements of jaxik: `python -m benchmarks`."""
