"""Robots: reading models, and the pytree that they become."""
