"""Distances between the shapes of a robot and to those of its world: signed, with normal and points.

One file for each family of pairs; `pairs` says which pairs there are, `distances` evaluates them for one element.
Imports core, numerics and kinematics.
"""
