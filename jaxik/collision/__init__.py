"""Distances between the shapes of a robot and to those of its world: signed, with normal and points.

A new pair of kinds is a function in the file of its family, listed in `PAIRS` of `distances`, which evaluates all pairs
of one element; `pairs` says which shapes are looked at. Imports core, numerics and kinematics.
"""
