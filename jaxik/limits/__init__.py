"""Limits: what a configuration must not leave."""
