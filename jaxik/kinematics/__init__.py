"""A robot's leaves, and what follows from a configuration: poses, Jacobians, centres of mass, mass matrix, manifold.

All functions take one element; `forward.py` is where to begin. Knows no batch, no task and no MuJoCo. Imports core and
numerics.
"""
